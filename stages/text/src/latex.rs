//! Knows which LaTeX commands are layout and which are operators, so that spellings of one formula fold together.

/// What a command does to the tokens of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// It changes how a formula looks, not what it says.
    Layout,
    /// It stands for a symbol.
    Symbol(char),
    /// It is one of the spellings of a fraction.
    Fraction,
    /// Its name says something.
    Word,
}

/// Longest name that means something here.
const LONGEST: usize = 16;

/// What the command of that name does, whatever the case of its letters.
pub(crate) fn command(name: &[u8]) -> Command {
    let mut buffer = [0; LONGEST];
    let Some(lower) = buffer.get_mut(..name.len()) else {
        return Command::Word;
    };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    match &*lower {
        b"frac" | b"dfrac" | b"tfrac" | b"cfrac" => Command::Fraction,
        b"cdot" | b"times" | b"ast" => Command::Symbol('*'),
        b"div" => Command::Symbol('/'),
        b"pm" => Command::Symbol('±'),
        b"le" | b"leq" | b"leqslant" => Command::Symbol('≤'),
        b"ge" | b"geq" | b"geqslant" => Command::Symbol('≥'),
        b"ne" | b"neq" => Command::Symbol('≠'),
        b"lt" => Command::Symbol('<'),
        b"gt" => Command::Symbol('>'),
        b"left" | b"right" | b"middle" | b"big" | b"bigl" | b"bigr" | b"bigg" | b"biggl" | b"biggr"
        | b"displaystyle" | b"textstyle" | b"scriptstyle" | b"limits" | b"nolimits" | b"quad" | b"qquad"
        | b"enspace" | b"thinspace" | b"negthinspace" | b"text" | b"textbf" | b"textit" | b"textrm" | b"texttt"
        | b"textsf" | b"textnormal" | b"mathrm" | b"mathbf" | b"mathit" | b"mathsf" | b"mathtt" | b"mathbb"
        | b"mathcal" | b"operatorname" | b"boldsymbol" | b"bm" | b"mbox" | b"hbox" | b"rm" | b"bf" | b"nonumber" => {
            Command::Layout
        }
        _ => Command::Word,
    }
}
