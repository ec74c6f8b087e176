//! What stands around an answer without being part of it, and names that mean something else here.

use super::{lexer::Token, value::Node};

/// Drops "the area is", "所以答案是" and the like: words that end in a verb before the first sign.
pub fn without_introduction(mut tokens: Vec<Token>) -> Vec<Token> {
    let head =
        tokens.iter().position(|token| !matches!(token, Token::Word(_) | Token::Symbol(_))).unwrap_or(tokens.len());
    let verb = tokens[..head].iter().rposition(|token| {
        matches!(token, Token::Word(word) if matches!(word.as_str(), "is" | "are" | "equals" | "equal" | "be" | "为" | "是") || word.ends_with('是') || word.ends_with('为'))
    });
    if let Some(verb) = verb
        && verb + 1 < tokens.len()
        && tokens[..=verb].iter().any(|token| matches!(token, Token::Word(word) if word.chars().count() > 1))
    {
        tokens.drain(..=verb);
    }
    // "all n ≥ 2", "for x > 0"
    if let [Token::Word(word), rest @ ..] = &tokens[..]
        && matches!(word.as_str(), "all" | "every" | "any" | "for")
        && rest.iter().any(|token| matches!(token, Token::Sign('<' | '>' | '≤' | '≥' | '≠' | '∈' | '=')))
    {
        tokens.remove(0);
    }
    while matches!(tokens.last(), Some(Token::Sign('⏎' | ',' | ';' | '.' | '。'))) {
        tokens.pop();
    }
    while matches!(tokens.first(), Some(Token::Sign('⏎' | ',' | ';' | ':' | '.'))) {
        tokens.remove(0);
    }
    tokens
}

/// An answer without numbers and signs is a text, unless it is made of single letters.
pub fn only_words(tokens: &[Token]) -> Option<Node> {
    if !tokens.iter().any(|token| matches!(token, Token::Word(word) if word.chars().count() > 1)) {
        return None;
    }
    let mut words = Vec::new();
    for token in tokens {
        match token {
            Token::Word(word) | Token::Symbol(word) => words.push(word.as_str()),
            Token::Sign('∨') => words.push("or"),
            Token::Sign('∧') => words.push("and"),
            Token::Sign('-' | '\'' | '.' | '!' | '?') => {}
            _ => return None,
        }
    }
    Some(Node::Text(words.join(" ")))
}

/// Plain-text names: `1j` and a lone `I` are the imaginary unit, `1 out of 2` is a quotient.
pub fn renamed(tokens: &mut Vec<Token>) {
    let symbols = |tokens: &[Token], other: &str| {
        tokens.iter().filter(|token| matches!(token, Token::Symbol(name) if name != "π" && name != other)).count()
    };
    let has = |tokens: &[Token], name: &str| {
        tokens.iter().any(|token| matches!(token, Token::Symbol(found) if found == name))
    };
    let joins = tokens.iter().any(|token| matches!(token, Token::Sign('+' | '-' | '*')));
    let relates = tokens.iter().any(|token| matches!(token, Token::Sign('=' | '<' | '>' | '≤' | '≥')));
    for name in ["j", "I"] {
        if joins && !relates && has(tokens, name) && symbols(tokens, name) == 0 {
            for token in tokens.iter_mut() {
                if matches!(token, Token::Symbol(found) if found == name) {
                    *token = Token::Symbol("i".into());
                }
            }
        }
    }
    let pair =
        |pair: &[Token]| matches!(pair, [Token::Word(first), Token::Word(second)] if first == "out" && second == "of");
    while let Some(at) = tokens.windows(2).position(pair) {
        tokens.splice(at..at + 2, [Token::Sign('/')]);
    }
}
