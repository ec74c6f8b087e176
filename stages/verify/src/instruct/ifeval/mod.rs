//! The 25 kinds of IFEval.

mod case;
mod content;
mod format;
mod json;
mod keywords;
mod length;

use super::{KindInfo, Parameter, Resource, Shape};

const fn asked(name: &'static str, shape: Shape) -> Parameter {
    Parameter::required(name, shape)
}

/// The registry, by the groups of the data set.
pub(super) const KINDS: &[KindInfo] = &[
    KindInfo {
        id: "change_case:capital_word_frequency",
        parameters: &[asked("capital_frequency", Shape::NUMBER), asked("capital_relation", Shape::Relation)],
        uses: &[Resource::SentenceModel, Resource::TreebankTokens],
        summary: "at least or less than so many words in capital letters",
        build: case::capital_word_frequency,
    },
    KindInfo {
        id: "change_case:english_capital",
        parameters: &[],
        uses: &[Resource::LanguageDetection, Resource::WordList("function words")],
        summary: "English in capital letters",
        build: |_| Ok(case::english_capital()),
    },
    KindInfo {
        id: "change_case:english_lowercase",
        parameters: &[],
        uses: &[Resource::LanguageDetection, Resource::WordList("function words")],
        summary: "English in lower case",
        build: |_| Ok(case::english_lowercase()),
    },
    KindInfo {
        id: "language:response_language",
        parameters: &[asked("language", Shape::Text)],
        uses: &[Resource::LanguageDetection, Resource::WordList("function words")],
        summary: "the response is in a language, named by its code of two letters",
        build: case::response_language,
    },
    KindInfo {
        id: "keywords:existence",
        parameters: &[asked("keywords", Shape::Texts)],
        uses: &[],
        summary: "all keywords are there, be it inside words",
        build: keywords::existence,
    },
    KindInfo {
        id: "keywords:frequency",
        parameters: &[
            asked("keyword", Shape::Text),
            asked("frequency", Shape::NUMBER),
            asked("relation", Shape::Relation),
        ],
        uses: &[],
        summary: "at least or less than so many times a keyword",
        build: keywords::frequency,
    },
    KindInfo {
        id: "keywords:forbidden_words",
        parameters: &[asked("forbidden_words", Shape::Texts)],
        uses: &[],
        summary: "none of the words stands in the response as a word of its own",
        build: keywords::forbidden_words,
    },
    KindInfo {
        id: "keywords:letter_frequency",
        parameters: &[
            asked("letter", Shape::Character),
            asked("let_frequency", Shape::NUMBER),
            asked("let_relation", Shape::Relation),
        ],
        uses: &[],
        summary: "at least or less than so many times a letter, in any case",
        build: keywords::letter_frequency,
    },
    KindInfo {
        id: "length_constraints:number_words",
        parameters: &[asked("num_words", Shape::NUMBER), asked("relation", Shape::Relation)],
        uses: &[],
        summary: "at least or less than so many words, a word being a run of letters, digits and underscores",
        build: length::number_words,
    },
    KindInfo {
        id: "length_constraints:number_sentences",
        parameters: &[asked("num_sentences", Shape::NUMBER), asked("relation", Shape::Relation)],
        uses: &[Resource::SentenceModel],
        summary: "at least or less than so many sentences",
        build: length::number_sentences,
    },
    KindInfo {
        id: "length_constraints:number_paragraphs",
        parameters: &[asked("num_paragraphs", Shape::NUMBER)],
        uses: &[],
        summary: "exactly so many paragraphs, separated by `***`",
        build: length::number_paragraphs,
    },
    KindInfo {
        id: "length_constraints:nth_paragraph_first_word",
        parameters: &[
            asked("num_paragraphs", Shape::POSITIVE),
            asked("nth_paragraph", Shape::POSITIVE),
            asked("first_word", Shape::Text),
        ],
        uses: &[],
        summary: "exactly so many paragraphs, separated by blank lines, and the n-th begins with a word",
        build: length::nth_paragraph_first_word,
    },
    KindInfo {
        id: "detectable_content:number_placeholders",
        parameters: &[asked("num_placeholders", Shape::NUMBER)],
        uses: &[],
        summary: "at least so many placeholders in square brackets",
        build: content::number_placeholders,
    },
    KindInfo {
        id: "detectable_content:postscript",
        parameters: &[asked("postscript_marker", Shape::Text)],
        uses: &[],
        summary: "a postscript that begins with a marker",
        build: content::postscript,
    },
    KindInfo {
        id: "detectable_format:number_bullet_lists",
        parameters: &[asked("num_bullets", Shape::NUMBER)],
        uses: &[],
        summary: "exactly so many bullet points of Markdown",
        build: format::number_bullet_lists,
    },
    KindInfo {
        id: "detectable_format:constrained_response",
        parameters: &[],
        uses: &[],
        summary: "`My answer is yes.`, `My answer is no.` or `My answer is maybe.`",
        build: |_| Ok(format::constrained_response()),
    },
    KindInfo {
        id: "detectable_format:number_highlighted_sections",
        parameters: &[asked("num_highlights", Shape::NUMBER)],
        uses: &[],
        summary: "at least so many sections between asterisks",
        build: format::number_highlighted_sections,
    },
    KindInfo {
        id: "detectable_format:multiple_sections",
        parameters: &[asked("section_spliter", Shape::Text), asked("num_sections", Shape::NUMBER)],
        uses: &[],
        summary: "at least so many sections, marked by a word and a number",
        build: format::multiple_sections,
    },
    KindInfo {
        id: "detectable_format:json_format",
        parameters: &[],
        uses: &[],
        summary: "the whole response is JSON, be it in a fence",
        build: |_| Ok(format::json_format()),
    },
    KindInfo {
        id: "detectable_format:title",
        parameters: &[],
        uses: &[],
        summary: "a title in double angular brackets",
        build: |_| Ok(format::title()),
    },
    KindInfo {
        id: "combination:two_responses",
        parameters: &[],
        uses: &[],
        summary: "two different responses separated by `******`",
        build: |_| Ok(content::two_responses()),
    },
    KindInfo {
        id: "combination:repeat_prompt",
        parameters: &[asked("prompt_to_repeat", Shape::Text)],
        uses: &[],
        summary: "the request is repeated word for word before the answer",
        build: content::repeat_prompt,
    },
    KindInfo {
        id: "startend:end_checker",
        parameters: &[asked("end_phrase", Shape::Text)],
        uses: &[],
        summary: "the response ends with a phrase",
        build: content::end_checker,
    },
    KindInfo {
        id: "startend:quotation",
        parameters: &[],
        uses: &[],
        summary: "the response is wrapped in double quotes",
        build: |_| Ok(content::quotation()),
    },
    KindInfo {
        id: "punctuation:no_comma",
        parameters: &[],
        uses: &[],
        summary: "no comma",
        build: |_| Ok(content::no_comma()),
    },
];
