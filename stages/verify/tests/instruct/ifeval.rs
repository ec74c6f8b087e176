//! Each kind of IFEval, with a response that holds and one that does not.

use crate::{complaint, holds};
use serde_json::{Value, json};
use stage_verify::instruct::{Scoring, checks, kinds};

/// Kind, parameters, responses that hold, responses that do not.
type Row = (&'static str, Value, &'static [&'static str], &'static [&'static str]);

fn keyword_rows() -> Vec<Row> {
    vec![
        (
            "keywords:existence",
            json!({"keywords": ["Mona Lisa", "art"]}),
            &["a MONA LISA to start"],
            &["the mona lisa"],
        ),
        ("keywords:existence", json!({"keywords": ["C++"]}), &["I like c++."], &["I like C."]),
        (
            "keywords:frequency",
            json!({"keyword": "key", "frequency": 2, "relation": "at least"}),
            &["key KEY", "keykey"],
            &["key"],
        ),
        (
            "keywords:frequency",
            json!({"keyword": " key ", "frequency": 2, "relation": "less than"}),
            &["key", "none"],
            &["key key"],
        ),
        (
            "keywords:forbidden_words",
            json!({"forbidden_words": ["art", "C++", "Größe"]}),
            &["we start", "arts", "C#", "size"],
            &["Art.", "an art_ piece of art", "I like C++ a lot", "die größe"],
        ),
        (
            "keywords:letter_frequency",
            json!({"letter": "T", "let_frequency": 2, "let_relation": "at least"}),
            &["Tt", "at it"],
            &["t"],
        ),
        (
            "keywords:letter_frequency",
            json!({"letter": "#", "let_frequency": 2, "let_relation": "at least"}),
            &["# one ## two"],
            &["# one", "letters without it"],
        ),
        (
            "keywords:letter_frequency",
            json!({"letter": "!", "let_frequency": 1, "let_relation": "less than"}),
            &["calm"],
            &["loud!"],
        ),
    ]
}

fn length_rows() -> Vec<Row> {
    vec![
        (
            "length_constraints:number_words",
            json!({"num_words": 4, "relation": "at least"}),
            &["don't stop_it now", "ein zwei drei vier", "शब्द शब्द"],
            &["stop_it now then"],
        ),
        (
            "length_constraints:number_words",
            json!({"num_words": 2, "relation": "less than"}),
            &["one", "中文没有空格"],
            &["one two", "well-known"],
        ),
        (
            "length_constraints:number_sentences",
            json!({"num_sentences": 2, "relation": "at least"}),
            &["Dr. Smith went. He came back!", "Go? No", "\"Stop.\" He did.", "It ended... However, it began."],
            &["Dr. Smith met J. Bach at 5 p.m. on Jan. 3", "one\n\ntwo"],
        ),
        (
            "length_constraints:number_sentences",
            json!({"num_sentences": 2, "relation": "less than"}),
            &["Version 3.5 is out, says Mr. Jones."],
            &["One. Two."],
        ),
        (
            "length_constraints:number_paragraphs",
            json!({"num_paragraphs": 2}),
            &["one\n***\ntwo", "*** one *** two ***"],
            &["one", "one\n***\n***\ntwo", "one *** two *** three", "one\n\ntwo"],
        ),
        (
            "length_constraints:nth_paragraph_first_word",
            json!({"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"}),
            &["first\n\nthen, second", "first\n\n\"THEN\" second", "first\n\n  then! go"],
            &["first\n\nso then", "then", "first\n\nthen\n\nthird", "first\n\n\n\nthen", "first\n\nthen-some"],
        ),
    ]
}

fn content_rows() -> Vec<Row> {
    vec![
        (
            "detectable_content:number_placeholders",
            json!({"num_placeholders": 2}),
            &["[name], [address]", "[[a] []"],
            &["[name]", "[na\nme] [x]", "]x[ [y]"],
        ),
        (
            "detectable_content:postscript",
            json!({"postscript_marker": "P.S."}),
            &["text\nP.S. more", "p. s. more", "P.P.S. x"],
            &["ps more", "P.S more"],
        ),
        (
            "detectable_content:postscript",
            json!({"postscript_marker": "P.P.S"}),
            &["P.P.S more", "p. p. s"],
            &["P.S. more", "pps"],
        ),
        ("detectable_content:postscript", json!({"postscript_marker": "Note:"}), &["x\nnote: y"], &["note y"]),
        (
            "combination:repeat_prompt",
            json!({"prompt_to_repeat": " Say hello. "}),
            &["  say HELLO. Hello!"],
            &["Sure: say hello.", "Say hello Hello"],
        ),
        (
            "combination:two_responses",
            json!({}),
            &["one ****** two", "******one******two******"],
            &["one", "one ****** one", "one ****** two ****** three", "one ****** ****** two", "a ***** b"],
        ),
        (
            "startend:end_checker",
            json!({"end_phrase": "Bye now."}),
            &["So. bye NOW.", "\"Bye now.\" "],
            &["Bye now", "Bye now. x"],
        ),
        ("startend:quotation", json!({}), &["\"quoted\"", " \"\" "], &["\"", "\"open", "'quoted'", "“curly”"]),
        ("punctuation:no_comma", json!({}), &["no comma; none", "全角，"], &["a, b"]),
    ]
}

fn format_rows() -> Vec<Row> {
    vec![
        (
            "detectable_format:number_bullet_lists",
            json!({"num_bullets": 2}),
            &["* a\n* b", "- a\n  *b", "x\n*a\n**bold**\n- c", "*\ntext\n* b"],
            &["* a", "* a\n* b\n- c", "*\n* b", "** a\n** b", "1. a\n2. b", "a * b\n*"],
        ),
        (
            "detectable_format:constrained_response",
            json!({}),
            &["My answer is yes.", "Well. My answer is maybe. So."],
            &["my answer is yes.", "My answer is yes", "Yes."],
        ),
        (
            "detectable_format:number_highlighted_sections",
            json!({"num_highlights": 2}),
            &["*a* and *b*", "**a** and **b**", "*a* **b**", "***a*** *b*"],
            &["*a*", "**a**", "* *  * *", "**** **", "*a\nb* *c*"],
        ),
        (
            "detectable_format:multiple_sections",
            json!({"section_spliter": " Section ", "num_sections": 2}),
            &["Section 1\na\nSection 2\nb", "Section1 Section22"],
            &["Section 1", "section 1 section 2", "Section one Section two", "Section  1 Section  2"],
        ),
        (
            "detectable_format:json_format",
            json!({}),
            &[
                "{\"a\": [1, -2.5e3, null, NaN]}",
                "```json\n[]\n```",
                "```\n\"text\"```",
                " 3 ",
                "{\"\\u12ab\\n\": -Infinity}",
            ],
            &[
                "{a: 1}",
                "[1,]",
                "{\"a\": 1,}",
                "```python\n1\n```",
                "01",
                "1.",
                "\"open",
                "\"\n\"",
                "[1] 2",
                "{\"a\" 1}",
                "[",
                "]",
            ],
        ),
        (
            "detectable_format:title",
            json!({}),
            &["<<joy>>", "x << a > b >> y", "<<>>a>>"],
            &["<<>>", "<< >>", "<joy>", "<<jo\ny>>", "<<<>>>"],
        ),
    ]
}

fn case_rows() -> Vec<Row> {
    vec![
        (
            "change_case:capital_word_frequency",
            json!({"capital_frequency": 3, "capital_relation": "at least"}),
            &["I AM HERE", "CAN'T you, I", "A-B C3 D.", "CANNOT go, I"],
            &["I am here", "McDonald AND Ab3", "AB-cd EF"],
        ),
        (
            "change_case:capital_word_frequency",
            json!({"capital_frequency": 1, "capital_relation": "less than"}),
            &["none at all", "iPhone"],
            &["I do"],
        ),
        (
            "change_case:english_capital",
            json!({}),
            &["THIS IS IN CAPITALS, 100 % OF IT.", "WE LIKE THE CITY"],
            &["THIS IS NOT in capitals", "DIES IST EIN SATZ IN DEUTSCHER SPRACHE", "123"],
        ),
        (
            "change_case:english_lowercase",
            json!({}),
            &["all of this is in lower case.", "we like the city"],
            &["This is not", "dies ist ein satz in deutscher sprache", "123", "это не по-английски"],
        ),
    ]
}

fn rows() -> impl Iterator<Item = Row> {
    [keyword_rows(), length_rows(), content_rows(), format_rows(), case_rows(), language_rows()].into_iter().flatten()
}

/// A sentence in each language, none of them from a data set.
const SENTENCES: [(&str, &str); 30] = [
    ("en", "The old mill stands by the river, and nobody has lived in it for years."),
    ("es", "El viejo molino está junto al río y nadie ha vivido allí durante años."),
    ("pt", "O velho moinho fica junto ao rio e ninguém mora nele há muitos anos."),
    ("ar", "تقع الطاحونة القديمة على ضفة النهر، ولم يسكنها أحد منذ سنوات."),
    ("hi", "पुरानी चक्की नदी के किनारे है और उसमें कई वर्षों से कोई नहीं रहता।"),
    ("fr", "Le vieux moulin se trouve près de la rivière et personne n'y habite depuis des années."),
    ("ru", "Старая мельница стоит у реки, и в ней уже много лет никто не живёт."),
    ("de", "Die alte Mühle steht am Fluss, und seit Jahren wohnt niemand mehr in ihr."),
    ("ja", "古い水車小屋は川のそばにあり、何年も誰も住んでいません。"),
    ("it", "Il vecchio mulino si trova vicino al fiume e nessuno ci abita da anni."),
    ("bn", "পুরোনো কলটি নদীর ধারে আছে এবং বহু বছর ধরে সেখানে কেউ থাকে না।"),
    ("uk", "Старий млин стоїть біля річки, і в ньому вже багато років ніхто не живе."),
    ("th", "โรงสีเก่าตั้งอยู่ริมแม่น้ำ และไม่มีใครอาศัยอยู่มาหลายปีแล้ว"),
    ("ur", "پرانی چکی دریا کے کنارے ہے اور اس میں کئی سالوں سے کوئی نہیں رہتا۔"),
    ("ta", "பழைய ஆலை ஆற்றின் அருகே உள்ளது, பல ஆண்டுகளாக யாரும் அங்கு வசிக்கவில்லை."),
    ("te", "పాత మిల్లు నది పక్కన ఉంది, చాలా సంవత్సరాలుగా అక్కడ ఎవరూ నివసించడం లేదు."),
    ("bg", "Старата мелница стои край реката и от години никой не живее в нея."),
    ("ko", "오래된 방앗간은 강가에 있고 몇 년 동안 아무도 살지 않았습니다."),
    ("pl", "Stary młyn stoi nad rzeką i od wielu lat nikt w nim nie mieszka."),
    ("he", "הטחנה הישנה עומדת ליד הנהר, ואיש לא גר בה כבר שנים."),
    ("fa", "آسیاب قدیمی در کنار رودخانه است و سال‌هاست که کسی در آن زندگی نمی‌کند."),
    ("vi", "Cối xay cũ nằm bên dòng sông và đã nhiều năm không có ai sống ở đó."),
    ("ne", "पुरानो घट्ट नदीको किनारमा छ र धेरै वर्षदेखि त्यहाँ कोही बस्दैन।"),
    ("sw", "Kinu cha zamani kiko karibu na mto na hakuna mtu aliyeishi humo kwa miaka mingi."),
    ("kn", "ಹಳೆಯ ಗಿರಣಿ ನದಿಯ ಪಕ್ಕದಲ್ಲಿದೆ ಮತ್ತು ಹಲವು ವರ್ಷಗಳಿಂದ ಅಲ್ಲಿ ಯಾರೂ ವಾಸಿಸುತ್ತಿಲ್ಲ."),
    ("mr", "जुनी गिरणी नदीच्या काठावर आहे आणि अनेक वर्षांपासून तिथे कोणीही राहत नाही."),
    ("gu", "જૂની ઘંટી નદી કિનારે છે અને ઘણા વર્ષોથી ત્યાં કોઈ રહેતું નથી."),
    ("pa", "ਪੁਰਾਣੀ ਚੱਕੀ ਦਰਿਆ ਦੇ ਕੰਢੇ ਹੈ ਅਤੇ ਕਈ ਸਾਲਾਂ ਤੋਂ ਉੱਥੇ ਕੋਈ ਨਹੀਂ ਰਹਿੰਦਾ।"),
    ("ml", "പഴയ മിൽ നദിക്കരയിലാണ്, വർഷങ്ങളായി അവിടെ ആരും താമസിക്കുന്നില്ല."),
    ("fi", "Vanha mylly on joen rannalla, eikä siinä ole asunut kukaan moneen vuoteen."),
];

fn language_rows() -> Vec<Row> {
    vec![(
        "language:response_language",
        json!({"language": "de"}),
        &["Das ist ein kurzer Satz.", "Die Lösung lautet $x = 4$, wie man an `print(x)` sieht."],
        &["This is a short sentence.", "Dit is een korte zin in het Nederlands.", "12345", "...", "🙂"],
    )]
}

#[test]
fn every_row_holds_or_fails_as_it_says() {
    let mut wrong = Vec::new();
    for (id, kwargs, good, bad) in rows() {
        for (response, expected) in good.iter().map(|text| (text, true)).chain(bad.iter().map(|text| (text, false))) {
            if holds(id, &kwargs, response) != expected {
                wrong.push(format!("{id} {kwargs} {response:?}: {}", !expected));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_kind_has_rows() {
    let of_ifeval: Vec<&str> = kinds().iter().map(|kind| kind.id).filter(|id| rows().any(|row| row.0 == *id)).collect();
    assert_eq!(of_ifeval.len(), 25);
}

#[test]
fn each_language_is_told_from_every_other() {
    for (language, sentence) in SENTENCES {
        for (asked, _) in SENTENCES {
            let found = holds("language:response_language", &json!({"language": asked}), sentence);
            assert_eq!(found, asked == language, "{asked} asked of {language}");
        }
    }
}

#[test]
fn every_kind_refuses_an_unknown_parameter_and_a_missing_one() {
    for (id, kwargs, ..) in rows() {
        let mut more = kwargs.clone();
        more["colour"] = json!("blue");
        assert!(complaint(id, &more).contains("unknown parameter `colour`"), "{id}");
        for name in kwargs.as_object().unwrap().keys() {
            let mut fewer = kwargs.clone();
            fewer[name.as_str()] = Value::Null;
            assert!(complaint(id, &fewer).contains(&format!("needs the parameter `{name}`")), "{id} {name}");
            let mut other = kwargs.clone();
            other[name.as_str()] = json!({"not": "this"});
            assert!(complaint(id, &other).contains(&format!("`{name}` of `{id}` is an object")), "{id} {name}");
        }
    }
}

#[test]
fn values_that_no_prompt_can_ask_are_refused() {
    let refused = [
        ("keywords:existence", json!({"keywords": []})),
        ("keywords:existence", json!({"keywords": ["a", " "]})),
        ("keywords:forbidden_words", json!({"forbidden_words": "word"})),
        ("keywords:letter_frequency", json!({"letter": "ab", "let_frequency": 1, "let_relation": "at least"})),
        ("keywords:frequency", json!({"keyword": "", "frequency": 1, "relation": "at least"})),
        (
            "length_constraints:nth_paragraph_first_word",
            json!({"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"}),
        ),
        (
            "length_constraints:nth_paragraph_first_word",
            json!({"num_paragraphs": 2, "nth_paragraph": 0, "first_word": "a"}),
        ),
        ("language:response_language", json!({"language": "German"})),
        ("combination:repeat_prompt", json!({"prompt_to_repeat": "  "})),
    ];
    for (id, kwargs) in refused {
        let message = complaint(id, &kwargs);
        assert!(message.contains(id) && !message.contains("was read"), "{message}");
    }
}

#[test]
fn loose_scoring_sees_through_asterisks() {
    let asked = |id: &str, kwargs: Value| [stage_verify::instruct::Constraint::parse(id, &kwargs).unwrap()];
    let end = asked("startend:end_checker", json!({"end_phrase": "Bye."}));
    let title = asked("keywords:existence", json!({"keywords": ["good day"]}));
    for (constraint, response) in [(&end, "So.\n**Bye.**"), (&title, "good *day*")] {
        assert!(!checks(constraint, response, Scoring::Strict)[0].holds, "{response}");
        assert!(checks(constraint, response, Scoring::Loose)[0].holds, "{response}");
    }
}
