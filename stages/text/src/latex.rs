//! Knows which LaTeX commands are layout and which are operators, so that spellings of one formula fold together.

/// Commands that change how a formula looks, not what it says.
const LAYOUT_COMMANDS: [&str; 41] = [
    "left",
    "right",
    "middle",
    "big",
    "bigl",
    "bigr",
    "bigg",
    "biggl",
    "biggr",
    "displaystyle",
    "textstyle",
    "scriptstyle",
    "limits",
    "nolimits",
    "quad",
    "qquad",
    "enspace",
    "thinspace",
    "negthinspace",
    "text",
    "textbf",
    "textit",
    "textrm",
    "texttt",
    "textsf",
    "textnormal",
    "mathrm",
    "mathbf",
    "mathit",
    "mathsf",
    "mathtt",
    "mathbb",
    "mathcal",
    "operatorname",
    "boldsymbol",
    "bm",
    "mbox",
    "hbox",
    "rm",
    "bf",
    "nonumber",
];

/// Whether a lower-cased command changes only how a formula looks.
pub(crate) fn is_layout(name: &str) -> bool {
    LAYOUT_COMMANDS.contains(&name)
}

/// The symbol that a lower-cased command stands for.
pub(crate) fn command_symbol(name: &str) -> Option<char> {
    Some(match name {
        "cdot" | "times" | "ast" => '*',
        "div" => '/',
        "pm" => '±',
        "le" | "leq" | "leqslant" => '≤',
        "ge" | "geq" | "geqslant" => '≥',
        "ne" | "neq" => '≠',
        "lt" => '<',
        "gt" => '>',
        _ => return None,
    })
}

/// A command name in lower case; `None` for names too long to be a known one.
pub(crate) fn lower<'b>(name: &[u8], buffer: &'b mut [u8; 16]) -> Option<&'b str> {
    let target = buffer.get_mut(..name.len())?;
    target.copy_from_slice(name);
    target.make_ascii_lowercase();
    std::str::from_utf8(target).ok()
}
