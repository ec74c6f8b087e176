//! Which natural language a text is written in, as far as IFEval asks.
//!
//! The script decides first, by the letters that are most; where several languages share it, frequent
//! small words decide, and the trigrams of `whatlang` where these are few. A text without letters, or one
//! that gives no evidence, has no language: the original lets such a text pass.

use rustc_hash::FxHashMap;
use std::{borrow::Cow, sync::OnceLock};
use unicode_normalization::{IsNormalized, UnicodeNormalization, char::is_combining_mark, is_nfc_quick};
use whatlang::{Detector, Lang};

const WORDS: &str = include_str!("../../data/function_words.txt");

/// The languages of IFEval, as ISO 639-1 codes.
pub(super) const LANGUAGES: [&str; 30] = [
    "en", "es", "pt", "ar", "hi", "fr", "ru", "de", "ja", "it", "bn", "uk", "th", "ur", "ta", "te", "bg", "ko", "pl",
    "he", "fa", "vi", "ne", "sw", "kn", "mr", "gu", "pa", "ml", "fi",
];

/// A script, or a group of scripts that is read as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Cyrillic,
    Arabic,
    Devanagari,
    Han,
    Kana,
    /// A script of one language.
    Of(&'static str),
    Other,
}

/// Scripts by their blocks.
const BLOCKS: [(u32, u32, Script); 30] = [
    (0x00c0, 0x024f, Script::Latin),
    (0x0370, 0x03ff, Script::Other),
    (0x0400, 0x052f, Script::Cyrillic),
    (0x0590, 0x05ff, Script::Of("he")),
    (0x0600, 0x06ff, Script::Arabic),
    (0x0750, 0x077f, Script::Arabic),
    (0x08a0, 0x08ff, Script::Arabic),
    (0x0900, 0x097f, Script::Devanagari),
    (0x0980, 0x09ff, Script::Of("bn")),
    (0x0a00, 0x0a7f, Script::Of("pa")),
    (0x0a80, 0x0aff, Script::Of("gu")),
    (0x0b80, 0x0bff, Script::Of("ta")),
    (0x0c00, 0x0c7f, Script::Of("te")),
    (0x0c80, 0x0cff, Script::Of("kn")),
    (0x0d00, 0x0d7f, Script::Of("ml")),
    (0x0e00, 0x0e7f, Script::Of("th")),
    (0x1100, 0x11ff, Script::Of("ko")),
    (0x1e00, 0x1eff, Script::Latin),
    (0x3041, 0x30ff, Script::Kana),
    (0x3130, 0x318f, Script::Of("ko")),
    (0x31f0, 0x31ff, Script::Kana),
    (0x3400, 0x4dbf, Script::Han),
    (0x4e00, 0x9fff, Script::Han),
    (0xac00, 0xd7af, Script::Of("ko")),
    (0xf900, 0xfaff, Script::Han),
    (0xfb1d, 0xfb4f, Script::Of("he")),
    (0xfb50, 0xfdff, Script::Arabic),
    (0xfe70, 0xfeff, Script::Arabic),
    (0xff66, 0xff9f, Script::Kana),
    (0x20000, 0x3ffff, Script::Han),
];

fn script(character: char) -> Option<Script> {
    if character.is_ascii() {
        return character.is_ascii_alphabetic().then_some(Script::Latin);
    }
    let code = u32::from(character);
    let index = BLOCKS.partition_point(|block| block.0 <= code);
    match index.checked_sub(1).and_then(|index| BLOCKS.get(index)).filter(|block| code <= block.1) {
        Some(block) => character.is_alphabetic().then_some(block.2),
        None => character.is_alphabetic().then_some(Script::Other),
    }
}

/// The language of a text, as an ISO 639-1 code, be it one of IFEval's or not; `None` when nothing tells.
pub(super) fn detect(text: &str) -> Option<&'static str> {
    match dominant(text)? {
        Script::Of(language) => Some(language),
        Script::Kana => Some("ja"),
        Script::Han => Some("zh"),
        Script::Other => None,
        Script::Latin => by_words(text, Script::Latin, &LATIN),
        Script::Cyrillic => by_words(text, Script::Cyrillic, &CYRILLIC),
        Script::Arabic => by_words(text, Script::Arabic, &ARABIC),
        Script::Devanagari => by_words(text, Script::Devanagari, &DEVANAGARI),
    }
}

/// The script of the most letters. Japanese mixes kana and Han: a tenth of kana makes both Japanese.
fn dominant(text: &str) -> Option<Script> {
    let mut counts: Vec<(Script, usize)> = Vec::with_capacity(4);
    for found in text.chars().filter_map(script) {
        match counts.iter_mut().find(|(script, _)| *script == found) {
            Some((_, count)) => *count += 1,
            None => counts.push((found, 1)),
        }
    }
    let count = |wanted| counts.iter().find(|(script, _)| *script == wanted).map_or(0, |(_, count)| *count);
    let (kana, han) = (count(Script::Kana), count(Script::Han));
    if kana > 0 && kana * 9 >= han {
        counts.push((Script::Kana, kana + han));
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(script, _)| script)
}

/// A language of a family.
struct Language {
    code: &'static str,
    /// What `whatlang` calls it, where it knows it.
    known: Option<Lang>,
    /// Its letters, besides those of ASCII, in lower case.
    letters: &'static str,
}

const fn language(code: &'static str, known: Option<Lang>, letters: &'static str) -> Language {
    Language { code, known, letters }
}

const LATIN: [Language; 22] = [
    language("en", Some(Lang::Eng), ""),
    language("es", Some(Lang::Spa), "áéíóúüñ"),
    language("pt", Some(Lang::Por), "áâãàçéêíóôõúü"),
    language("fr", Some(Lang::Fra), "àâæçéèêëîïôœùûüÿ"),
    language("de", Some(Lang::Deu), "äöüß"),
    language("it", Some(Lang::Ita), "àèéìíîòóùú"),
    language("vi", Some(Lang::Vie), "àáâãèéêìíòóôõùúýăđĩũơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ"),
    language("pl", Some(Lang::Pol), "ąćęłńóśźż"),
    language("fi", Some(Lang::Fin), "äöåšž"),
    language("sw", None, ""),
    language("nl", Some(Lang::Nld), "áèéêëíïóöü"),
    language("ca", Some(Lang::Cat), "àçèéíïòóúü"),
    language("ro", Some(Lang::Ron), "ăâîșțşţ"),
    language("sv", Some(Lang::Swe), "åäöé"),
    language("da", Some(Lang::Dan), "æøåé"),
    language("no", Some(Lang::Nob), "æøåé"),
    language("id", Some(Lang::Ind), ""),
    language("tr", Some(Lang::Tur), "çğıöşüâîû"),
    language("cs", Some(Lang::Ces), "áčďéěíňóřšťúůýž"),
    language("hu", Some(Lang::Hun), "áéíóöőúüű"),
    language("hr", Some(Lang::Hrv), "čćđšž"),
    language("tl", Some(Lang::Tgl), "ñ"),
];
const CYRILLIC: [Language; 6] = [
    language("ru", Some(Lang::Rus), "абвгдежзийклмнопрстуфхцчшщъыьэюяё"),
    language("uk", Some(Lang::Ukr), "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"),
    language("bg", Some(Lang::Bul), "абвгдежзийклмнопрстуфхцчшщъьюяѝ"),
    language("be", Some(Lang::Bel), "абвгдеёжзійклмнопрстуўфхцчшыьэюя"),
    language("sr", Some(Lang::Srp), "абвгдђежзијклљмнњопрстћуфхцчџш"),
    language("mk", Some(Lang::Mkd), "абвгдѓежзѕијклљмнњопрстќуфхцчџшѐѝ"),
];
const ARABIC: [Language; 3] = [
    language("ar", Some(Lang::Ara), "ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهويىـ"),
    language("fa", Some(Lang::Pes), "آاءأؤئبپتثجچحخدذرزژسشصضطظعغفقکگلمنوهیيكۀة"),
    language("ur", Some(Lang::Urd), "آاءأؤئبپتٹثجچحخدڈذرڑزژسشصضطظعغفقکگلمنںوۂہھیےۓۃ"),
];
const DEVANAGARI: [Language; 3] = [
    language("hi", Some(Lang::Hin), "अआइईउऊऋऌएऐऑओऔकखगघङचछजझञटठडढणतथदधनपफबभमयरलवशषसहॐऽ"),
    language("mr", Some(Lang::Mar), "अआइईउऊऋऌएऐऑओऔकखगघङचछजझञटठडढणतथदधनपफबभमयरलवशषसहॐऽळऍऎॲऱ"),
    language("ne", Some(Lang::Nep), "अआइईउऊऋऌएऐऑओऔकखगघङचछजझञटठडढणतथदधनपफबभमयरलवशषसहॐऽ"),
];

/// What the trigrams add, in shares of small words: it decides where small words are few or shared.
const TRIGRAMS: f64 = 0.06;

/// What a language that no prompt asks for counts, so that it wins only where it fits clearly better.
const RIVAL: f64 = 0.8;

/// The language of a family that fits best: by the share of its small words, less the share of words with
/// letters that it does not have.
fn by_words(text: &str, shared: Script, family: &[Language]) -> Option<&'static str> {
    let composed = if is_nfc_quick(text.chars()) == IsNormalized::Yes {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().collect::<String>())
    };
    let lower = composed.to_lowercase();
    let mut fits = vec![0_i32; family.len()];
    let (mut words, mut vowels) = (0, 0);
    let is_part = |letter: char| letter.is_alphabetic() || is_combining_mark(letter);
    let is_shared = |word: &&str| word.chars().next().and_then(script) == Some(shared);
    for word in lower.split(|letter| !is_part(letter)).filter(is_shared) {
        words += 1;
        vowels += i32::from(word.ends_with(['a', 'e', 'i', 'o', 'u']));
        let speakers = small_words().get(word).map_or(&[][..], Vec::as_slice);
        let is_strange = |letter: char, of: &Language| {
            !letter.is_ascii()
                && !is_combining_mark(letter)
                && script(letter) == Some(shared)
                && !of.letters.contains(letter)
        };
        for (fit, of) in fits.iter_mut().zip(family) {
            *fit += i32::from(speakers.contains(&of.code));
            *fit -= i32::from(!word.is_ascii() && word.chars().any(|letter| is_strange(letter, of)));
        }
    }
    let guess = Detector::with_allowlist(family.iter().filter_map(|of| of.known).collect()).detect_lang(&lower);
    let scored = family.iter().zip(&fits).map(|(of, fit)| {
        let is_guess = match of.known {
            Some(known) => Some(known) == guess,
            // Swahili, whose words end in vowels
            None => *fit > 0 && vowels * 10 >= words * 9,
        };
        let score = f64::from(*fit) / f64::from(words.max(1)) + if is_guess { TRIGRAMS } else { 0.0 };
        (if LANGUAGES.contains(&of.code) { score } else { score * RIVAL }, of.code)
    });
    // of equal scores the first of the family counts
    let best = scored.rev().max_by(|left, right| left.0.total_cmp(&right.0));
    best.filter(|(score, _)| *score > 0.0).map(|(_, code)| code)
}

/// Small words, and the languages that have them.
fn small_words() -> &'static FxHashMap<&'static str, Vec<&'static str>> {
    static SMALL: OnceLock<FxHashMap<&'static str, Vec<&'static str>>> = OnceLock::new();
    SMALL.get_or_init(|| {
        let mut words: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for line in WORDS.lines().filter(|line| !line.starts_with('#')) {
            let mut entries = line.split(' ');
            let Some(language) = entries.next() else {
                continue;
            };
            for word in entries {
                words.entry(word).or_default().push(language);
            }
        }
        words
    })
}
