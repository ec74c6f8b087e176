//! How kinds of IFBench read a response where a prompt leaves it open: as the benchmark does.

use crate::{check, holds};
use serde_json::json;

/// Whether a response holds for a kind without parameters.
fn plain(id: &str, response: &str) -> bool {
    holds(id, &json!({}), response)
}

#[test]
fn a_conjunction_in_another_case_or_with_a_mark_counts_once_more() {
    assert!(holds("count:conjunctions", &json!({"small_n": 3}), "And this and that, and, so"));
    assert!(!holds("count:conjunctions", &json!({"small_n": 2}), "this and that and those"));
}

#[test]
fn pieces_of_marks_alone_are_one_word_of_the_unique_words() {
    assert!(holds("count:unique_word_count", &json!({"N": 3}), "a - b - a"));
    assert!(!holds("count:unique_word_count", &json!({"N": 4}), "a - b - a"));
}

#[test]
fn names_are_whole_words_in_their_own_case() {
    for none in ["emma", "Emma_", "xEmma", "Emmas"] {
        assert!(!holds("count:person_names", &json!({"N": 1}), none), "{none}");
    }
    assert!(holds("count:person_names", &json!({"N": 1}), "xEmma Emma's"));
}

#[test]
fn the_marks_of_the_interrobang_do_not_count_for_themselves() {
    assert!(plain("count:punctuation", ". , ! ? ; : ‽"));
    assert!(!plain("count:punctuation", ". , ? ; : !?"));
    assert!(!plain("count:punctuation", ". , ! ? ; :"));
}

#[test]
fn every_nth_word_may_be_a_number_or_a_mark() {
    let every_second = json!({"N": 2});
    assert!(holds("count:words_japanese", &every_second, "a 12. b ** c ほ"));
    assert!(!holds("count:words_japanese", &every_second, "ほ a"));
    assert!(!holds("count:words_japanese", &json!({"N": 1}), "3½"));
}

#[test]
fn dates_are_checked_by_month_and_by_the_life_of_napoleon() {
    assert!(plain("custom:date_format_list", "1800-02-29"));
    for wrong in ["1822-01-01", "1800-13-01", "1800-02-30", "1800-4-01", "on 1800-04-01", "1800-04-01,"] {
        assert!(!plain("custom:date_format_list", wrong), "{wrong}");
    }
}

#[test]
fn a_table_has_exactly_its_rows_and_a_blank_line_is_one() {
    let rows = "ID,Country,City,Year,Count\n".to_owned() + &"1,a,b,c,d\n".repeat(7);
    assert!(plain("custom:csv_city", &rows));
    assert!(!plain("custom:csv_city", &(rows.clone() + "\n")));
    assert!(!plain("custom:csv_city", &rows.replace("ID,", "Id,")));
    assert!(!plain("custom:csv_city", &rows.replacen("1,a", "1,\ra", 1)));
}

#[test]
fn nothing_may_stand_before_the_first_question() {
    let question =
        |number: usize| format!("Question {number}) {}\nA. x\nb) y\nC| z\nd.w\nE) v\n", "long ".repeat(number));
    let quiz: String = (1..=4).map(question).collect();
    assert!(plain("custom:mcq_count_length", &quiz));
    assert!(!plain("custom:mcq_count_length", &format!("Here: {quiz}")));
    assert!(!plain("custom:mcq_count_length", &quiz.replace("long long long long", "long")));
    assert!(!plain("custom:mcq_count_length", &quiz.replace("Question 4", "Question four")));
}

#[test]
fn an_emoji_may_stand_before_the_mark_after_it_or_at_the_begin_of_the_next_sentence() {
    assert!(plain("format:emoji", "Hi 😀. Ho. 🎉 He 👍🏽!"));
    assert!(!plain("format:emoji", "Hi 😀. Ho."));
    assert!(!plain("format:emoji", "A flag is a sequence 🇺🇸."));
}

#[test]
fn one_blank_line_between_stairs_is_let_pass_and_two_are_not() {
    assert!(plain("format:line_indent", "a\n\n b\n\n  c"));
    assert!(!plain("format:line_indent", "a\n\n\n b"));
    assert!(!plain("format:line_indent", "  a\n\tb"));
}

#[test]
fn sentences_before_bullets_end_at_a_blank_line() {
    assert!(plain("format:no_bullets_bullets", "One. Two.\n\n* a\n  * b"));
    assert!(!plain("format:no_bullets_bullets", "One.\n\nTwo.\n* a\n* b"));
    assert!(!plain("format:no_bullets_bullets", "One. Two.\n* a\n* b\n"));
}

#[test]
fn options_of_letters_are_exact_and_others_are_not() {
    let letters = json!({"options": "a), b), c), d)"});
    assert!(holds("format:options", &letters, "b)"));
    assert!(!holds("format:options", &letters, "b") && !holds("format:options", &letters, "B)"));
    let phrases = json!({"options": "I know or I don't know"});
    assert!(holds("format:options", &phrases, "\"i don't know.\""));
    assert!(!holds("format:options", &phrases, "I know or I don't know"));
    assert!(holds("format:options", &json!({"options": "red, green, blue"}), "Green!"));
}

#[test]
fn brackets_that_do_not_match_start_the_count_anew() {
    assert!(plain("format:parentheses", "((((( )"));
    assert!(!plain("format:parentheses", "((((( ]"));
    assert!(plain("format:parentheses", ") ([{([])}])"));
}

#[test]
fn talk_of_the_quote_mark_quotes_nothing() {
    assert!(plain("format:quote_unquote", "A \"phrase\" and the mark '\"'."));
    assert!(!plain("format:quote_unquote", "\"One\" \"two\" end"));
    assert!(!plain("format:quote_unquote", "The end “phrase” 1."));
    assert!(!plain("format:quote_unquote", "The end “phrase”."));
}

#[test]
fn a_thesis_is_anywhere_in_italics_with_text_after_it() {
    assert!(plain("format:thesis", "First <em>a claim</em> then text"));
    assert!(!plain("format:thesis", "<i> </i> text") && !plain("format:thesis", "<i>open"));
    assert!(!plain("format:thesis", "*claim* text"));
}

#[test]
fn title_case_fails_for_words_of_small_letters_alone() {
    assert!(plain("format:title_case", "iPhone And eBay, 2nd Edition"));
    assert!(!plain("format:title_case", "The iphone"));
    assert!(!plain("format:title_case", "This Is a Title"));
}

#[test]
fn overlap_is_a_share_of_different_trigrams_of_characters() {
    let kwargs = |percentage: u32| json!({"reference_text": "abc", "percentage": percentage});
    assert!(holds("ratio:overlap", &kwargs(98), "abc") && holds("ratio:overlap", &kwargs(100), "abc"));
    assert!(!holds("ratio:overlap", &kwargs(97), "abc"));
    assert!(!holds("ratio:overlap", &kwargs(0), "ab"));
}

#[test]
fn shares_of_nothing_do_not_hold() {
    let found = check("ratio:stop_words", &json!({"percentage": 100}), "?!");
    assert_eq!((found.holds, found.why.as_ref()), (false, "no words"));
    assert!(!holds("sentence:increment", &json!({"small_n": 0}), ""));
}

#[test]
fn the_span_to_repeat_is_counted_in_characters_from_zero() {
    let kwargs = json!({"prompt_to_repeat": "Ünïcode counts", "n_start": 8, "n_end": 99});
    assert!(holds("repeat:repeat_span", &kwargs, "COUNTS"));
    assert!(!holds("repeat:repeat_span", &kwargs, "The span is: counts"));
}

#[test]
fn only_the_first_word_of_a_repeated_request_differs() {
    let kwargs = json!({"prompt_to_repeat": "Tell me  more"});
    assert!(holds("repeat:repeat_change", &kwargs, "Show me\nmore"));
    assert!(!holds("repeat:repeat_change", &kwargs, "Tell me  more"));
    assert!(!holds("repeat:repeat_change", &kwargs, "Show me some more"));
}

#[test]
fn a_keyword_is_a_whole_word_of_its_sentence() {
    let kwargs = json!({"word": "tea", "N": 1});
    assert!(holds("sentence:keyword", &kwargs, "TEA-time now."));
    assert!(!holds("sentence:keyword", &kwargs, "A teapot."));
    assert!(!holds("sentence:keyword", &json!({"word": "c++", "N": 1}), "I write C++ code."));
}

#[test]
fn syllables_follow_groups_of_vowels_and_the_list() {
    for held in ["cat water", "table the", "area over", "asked asking", "wake awake"] {
        assert!(plain("words:odd_even_syllables", held), "{held}");
    }
    assert!(!plain("words:odd_even_syllables", "table over"));
    assert!(plain("words:odd_even_syllables", "cat 42 cat x2 cat"));
}

#[test]
fn verbs_are_told_by_list_form_and_the_next_word() {
    for verb in [
        "Write it.",
        "Running is fun.",
        "Asked for help.",
        "Went home.",
        "Is it?",
        "Let's go.",
        "Clarify this.",
        "Rewrite it.",
        "Book a flight.",
        "Plan your day.",
        "Plans the day.",
        "Makes sense.",
        "Stopped.",
        "Don't go.",
        "Prioritize.",
        "Tried it.",
    ] {
        assert!(plain("words:start_verb", verb), "{verb}");
    }
    for other in [
        "The cat.",
        "Book is closed.",
        "Love is blind.",
        "Plans are made.",
        "Cats sleep.",
        "Can you?",
        "Please go.",
        "Yes.",
        "Question: what?",
        "Size matters.",
        "Unlike the cat.",
        "Nothing.",
        "During it.",
        "Red.",
        "1. Write",
        "",
    ] {
        assert!(!plain("words:start_verb", other), "{other:?}");
    }
}

#[test]
fn one_mark_at_the_end_is_no_word_of_the_positions() {
    let kwargs = json!({"keyword": "tea"});
    assert!(holds("words:words_position", &kwargs, "My tea or Tea tonight"));
    assert!(!holds("words:words_position", &kwargs, "My tea is tea, sir"));
    assert!(holds("words:words_position", &kwargs, "My tea is tea too."));
}
