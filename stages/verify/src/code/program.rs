//! Finds the program in a trace: the last complete fenced block of the answer part.
//!
//! Fences are those of Markdown, three or more backticks or tildes, indented or not. A block that
//! names a wanted language wins over one that names none, since sample output follows a solution more
//! often than an unnamed solution follows a named draft; blocks of other languages (text, bash,
//! json) are never a program. A fence that never ends is a trace that was cut.

use super::toolchain::language;
use crate::extract::{Extraction, Missing, answer_start};
use std::borrow::Cow;

/// The program of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program<'a> {
    /// Its text, without the indentation of its fence.
    pub source: Cow<'a, str>,
    /// The language that its fence names, in its usual name (`python`, `cpp`).
    pub language: Option<String>,
    /// No fence was there, and the whole answer was taken.
    pub weak: bool,
}

/// Why a trace has no program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoProgram {
    /// The reasoning or the last block never ends.
    Truncated,
    /// No block.
    Unmarked,
    /// Only blocks of another language, which is named.
    Language(String),
}

/// What to look for.
pub struct Wanted<'a> {
    /// Whether a language is wanted; names as [`language`] gives them.
    pub language: &'a dyn Fn(&str) -> bool,
    /// A function or class that the program must define, if it is known: examples of use often follow it.
    pub defines: Option<&'a str>,
}

/// The program in `trace`.
///
/// ```
/// use stage_verify::{Extraction, code::{Wanted, program}};
/// let wanted = Wanted { language: &|name| name == "python", defines: None };
/// let trace = "Read two numbers.\n```py\nprint(1)\n```\nOutput:\n```text\n1\n```\n";
/// let found = program(trace, Extraction::Strict, &wanted).unwrap();
/// assert_eq!((&*found.source, found.language.as_deref()), ("print(1)\n", Some("python")));
/// ```
///
/// # Errors
/// [`NoProgram`]: cut off, no block, or only blocks of languages that are not wanted.
pub fn program<'a>(trace: &'a str, extraction: Extraction, wanted: &Wanted<'_>) -> Result<Program<'a>, NoProgram> {
    let start = answer_start(trace).map_err(|missing| match missing {
        Missing::Truncated => NoProgram::Truncated,
        Missing::Unmarked => NoProgram::Unmarked,
    })?;
    let section = &trace[start..];
    let blocks = blocks(section, wanted)?;
    let named = || blocks.iter().rev().filter(|block| block.language.as_deref().is_some_and(wanted.language));
    let bare = || blocks.iter().rev().filter(|block| block.language.is_none());
    let fits = |block: &&Block<'a>| wanted.defines.is_some_and(|name| defines(&block.source, name));
    let found = named().find(fits).or_else(|| bare().find(fits)).or_else(|| named().next()).or_else(|| bare().next());
    match (found, blocks.iter().rev().find_map(|block| block.language.clone())) {
        (Some(block), _) => Ok(Program { source: block.source.clone(), language: block.language.clone(), weak: false }),
        (None, Some(language)) => Err(NoProgram::Language(language)),
        (None, None) if extraction == Extraction::Lenient && !section.trim().is_empty() => {
            Ok(Program { source: section.into(), language: None, weak: true })
        }
        (None, None) => Err(NoProgram::Unmarked),
    }
}

struct Block<'a> {
    language: Option<String>,
    source: Cow<'a, str>,
}

/// An opening fence.
struct Fence {
    mark: char,
    length: usize,
    indent: usize,
    language: Option<String>,
    /// Where the block's first line begins.
    body: usize,
}

/// All complete blocks that hold something, in order.
fn blocks<'a>(section: &'a str, wanted: &Wanted<'_>) -> Result<Vec<Block<'a>>, NoProgram> {
    let mut found = Vec::new();
    let mut open: Option<Fence> = None;
    let mut at = 0;
    for line in section.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let plain = line.trim_end();
        match &open {
            None => open = opening(plain, at, wanted),
            Some(fence) if closes(plain, fence) => {
                let source = unindented(&section[fence.body..start], fence.indent);
                if !source.trim().is_empty() {
                    found.push(Block { language: fence.language.clone(), source });
                }
                open = None;
            }
            Some(_) => {}
        }
    }
    match open {
        Some(fence) if !section[fence.body..].trim().is_empty() => Err(NoProgram::Truncated),
        _ => Ok(found),
    }
}

fn opening(line: &str, body: usize, wanted: &Wanted<'_>) -> Option<Fence> {
    let content = line.trim_start();
    let indent = line.len() - content.len();
    for mark in ['`', '~'] {
        let rest = content.trim_start_matches(mark);
        let length = content.len() - rest.len();
        if length >= 3 && !(mark == '`' && rest.contains('`')) {
            return Some(Fence { mark, length, indent, language: named(rest), body });
        }
    }
    // words before the fence on its line: only where a wanted language follows, and nothing else
    let (before, word) = line.rsplit_once("```")?;
    let is_fence = !before.contains("```") && !word.contains(char::is_whitespace);
    let language = named(word).filter(|name| is_fence && (wanted.language)(name))?;
    Some(Fence { mark: '`', length: 3, indent: 0, language: Some(language), body })
}

fn closes(line: &str, fence: &Fence) -> bool {
    let content = line.trim_start();
    let rest = content.trim_start_matches(fence.mark);
    // deeper than that it is a line of the program, as in a text in triple quotes
    let depth = line.len() - content.len();
    rest.is_empty() && content.len() >= fence.length && depth <= fence.indent + 3
}

/// The language of an info string such as `python`, `{.py .numberLines}` or `cpp:main.cpp`.
fn named(info: &str) -> Option<String> {
    let separators = |letter: char| letter.is_whitespace() || ",:;{}()[]=\"".contains(letter);
    let word = info.split(separators).map(|word| word.trim_start_matches('.')).find(|word| !word.is_empty())?;
    let name = language(word);
    (!["code", "program", "solution"].contains(&name.as_str())).then_some(name)
}

fn unindented(body: &str, indent: usize) -> Cow<'_, str> {
    if indent == 0 {
        return body.into();
    }
    let line = |line: &str| {
        let blanks = line.bytes().take(indent).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        line[blanks..].to_string()
    };
    body.split_inclusive('\n').map(line).collect::<String>().into()
}

/// Whether a text gives `name` a meaning at the start of a line: `def name(`, `class name:`, `name =`.
fn defines(source: &str, name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    source.lines().any(|line| {
        let line = line.trim_start();
        let defined = ["def ", "async def ", "class "].iter().find_map(|word| line.strip_prefix(word));
        match defined {
            Some(rest) => rest.trim_start().strip_prefix(name).is_some_and(ends),
            None => line
                .strip_prefix(name)
                .is_some_and(|rest| rest.trim_start().strip_prefix('=').is_some_and(|rest| !rest.starts_with('='))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{NoProgram, Wanted, program};
    use crate::extract::Extraction::{Lenient, Strict};

    fn find(trace: &str) -> Result<String, NoProgram> {
        let wanted = Wanted { language: &|name| ["python", "cpp"].contains(&name), defines: None };
        program(trace, Strict, &wanted).map(|found| found.source.into_owned())
    }

    #[test]
    fn the_last_block_of_the_answer_part_is_the_program() {
        let trace = "<think>\n```python\nold\n```\n</think>解答如下：\n```python\nfirst\n```\n改进：\n```Python3\r\nlast\r\n```\r\n完。";
        assert_eq!(find(trace).unwrap(), "last\r\n");
    }

    #[test]
    fn blocks_of_other_languages_after_the_solution_are_passed_over() {
        let trace = "```cpp\nint main(){}\n```\nRun:\n```bash\ng++ a.cpp\n```\n```\n5\n```\n```json\n{}\n```\n";
        assert_eq!(find(trace).unwrap(), "int main(){}\n");
        assert_eq!(find("```java\nclass A{}\n```\n"), Err(NoProgram::Language("java".to_string())));
        assert_eq!(find("```\nprint(1)\n```\n```text\n1\n```").unwrap(), "print(1)\n");
    }

    #[test]
    fn a_fence_that_never_ends_is_a_cut_trace() {
        assert_eq!(find("```python\na\n```\n```python\nb"), Err(NoProgram::Truncated));
        assert_eq!(find("<think>```python\na\n```"), Err(NoProgram::Truncated));
        assert_eq!(find("```python\na\n```\n```\n").unwrap(), "a\n");
    }

    #[test]
    fn fences_come_in_all_markdown_shapes() {
        assert_eq!(find("~~~ py\na\n```\nb\n~~~").unwrap(), "a\n```\nb\n");
        assert_eq!(find("````python\n```\ninner\n```\n````\n").unwrap(), "```\ninner\n```\n");
        assert_eq!(find("1. So:\n   ```c++\n   int a;\n     int b;\n   ```\n").unwrap(), "int a;\n  int b;\n");
        assert_eq!(find("```python\ns = '''\n    ```\n'''\n```\n").unwrap(), "s = '''\n    ```\n'''\n");
        assert_eq!(find("```{.python .numberLines}\na\n```").unwrap(), "a\n");
        assert_eq!(find("代码：```python\na\n```").unwrap(), "a\n");
        assert_eq!(find("Use ```print(1)``` here"), Err(NoProgram::Unmarked));
        assert_eq!(find("```python\n```"), Err(NoProgram::Unmarked));
    }

    #[test]
    fn strict_needs_a_fence_and_lenient_takes_the_whole_answer() {
        let wanted = Wanted { language: &|_| true, defines: None };
        assert_eq!(program("print(1)", Strict, &wanted), Err(NoProgram::Unmarked));
        let found = program("<think>a</think>print(1)", Lenient, &wanted).unwrap();
        assert_eq!((&*found.source, found.weak), ("print(1)", true));
        assert_eq!(program(" \n", Lenient, &wanted), Err(NoProgram::Unmarked));
    }

    #[test]
    fn an_example_of_use_after_the_solution_is_not_the_program() {
        let trace = "```python\ndef add(a, b):\n    return a + b\n```\nFor example:\n```python\nprint(add(1, 2) == 3)\nadder = 1\n```\n";
        let wanted = |defines| Wanted { language: &|name| name == "python", defines };
        let source = |defines| program(trace, Strict, &wanted(defines)).unwrap().source.into_owned();
        assert!(source(Some("add")).starts_with("def add"));
        assert!(source(None).starts_with("print") && source(Some("other")).starts_with("print"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_finder_panic(trace in "[`~ \n\r\tpython{}.数a=]{0,60}") {
            let _ = find(&trace);
        }
    }
}
