//! Names the lexer knows: commands, signs, functions, units.

/// Commands that only lay out.
pub const LAYOUT: &[&str] = &[
    "left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "displaystyle", "textstyle",
    "scriptstyle", "limits", "nolimits", "quad", "qquad", "hspace", "vspace", "phantom", "hphantom", "color", "hfill", "nonumber",
    "middle", "thinspace", "allowbreak", "rm", "bf", "it", "sf", "tt", "small", "large", "Large", "footnotesize", "hline", "strut",
];

/// Commands whose group is text, or formula text in another face.
pub const TEXT_COMMANDS: &[&str] = &[
    "text", "textbf", "textit", "textrm", "textnormal", "textsf", "texttt", "mbox", "hbox", "mathrm", "mathbf", "mathit", "mathsf",
    "mathtt", "mathcal", "mathbb", "Bbb", "mathfrak", "mathscr", "operatorname", "boxed", "fbox", "emph", "boldsymbol", "bm",
    "underline", "ensuremath", "textup", "mathnormal",
];

/// Commands that are one sign.
pub const SIGNS: &[(&str, char)] = &[
    ("times", '*'), ("cdot", '*'), ("ast", '*'), ("div", '/'), ("over", '⧸'), ("pm", '±'), ("mp", '∓'), ("le", '≤'), ("leq", '≤'),
    ("leqslant", '≤'), ("leqq", '≤'), ("ge", '≥'), ("geq", '≥'), ("geqslant", '≥'), ("geqq", '≥'), ("lt", '<'), ("gt", '>'), ("ne", '≠'), ("neq", '≠'),
    ("approx", '≈'), ("simeq", '≈'), ("sim", '≈'), ("in", '∈'), ("notin", '∉'), ("cup", '∪'), ("bigcup", '∪'), ("cap", '∩'), ("setminus", '∖'),
    ("backslash", '∖'), ("mid", '|'), ("vert", '|'), ("lvert", '|'), ("rvert", '|'), ("colon", ':'), ("infty", '∞'), ("circ", '°'),
    ("degree", '°'), ("prime", '\''), ("lfloor", '⌊'), ("rfloor", '⌋'), ("lceil", '⌈'), ("rceil", '⌉'), ("langle", '⟨'), ("rangle", '⟩'),
    ("lbrace", '⦃'), ("rbrace", '⦄'), ("lbrack", '['), ("rbrack", ']'), ("ldots", '…'), ("dots", '…'), ("cdots", '…'), ("dotsc", '…'), ("vdots", '…'),
    ("emptyset", '∅'), ("varnothing", '∅'), ("land", '∧'), ("wedge", '∧'), ("lor", '∨'), ("vee", '∨'), ("to", '→'), ("rightarrow", '→'),
    ("Rightarrow", '→'), ("implies", '→'), ("iff", '→'), ("equiv", '≡'), ("cong", '≡'), ("subset", '⊂'), ("subseteq", '⊂'),
    ("bmod", 'ⓜ'), ("mod", 'ⓜ'), ("newline", '⏎'), ("tfrac", '⧄'), ("percent", '%'), ("lVert", '‖'), ("rVert", '‖'), ("Vert", '‖'),
];

/// Commands and plain names that are one symbol.
pub const SYMBOLS: &[(&str, &str)] = &[
    ("pi", "π"), ("Pi", "Π"), ("alpha", "α"), ("beta", "β"), ("gamma", "γ"), ("Gamma", "Γ"), ("delta", "δ"), ("Delta", "Δ"),
    ("epsilon", "ε"), ("varepsilon", "ε"), ("zeta", "ζ"), ("eta", "η"), ("theta", "θ"), ("vartheta", "θ"), ("Theta", "Θ"), ("kappa", "κ"),
    ("lambda", "λ"), ("Lambda", "Λ"), ("mu", "μ"), ("nu", "ν"), ("xi", "ξ"), ("rho", "ρ"), ("varrho", "ρ"), ("sigma", "σ"), ("Sigma", "Σ"),
    ("tau", "τ"), ("phi", "φ"), ("varphi", "φ"), ("Phi", "Φ"), ("chi", "χ"), ("psi", "ψ"), ("Psi", "Ψ"), ("omega", "ω"), ("Omega", "Ω"),
    ("hbar", "ℏ"), ("ell", "ℓ"), ("angle", "∠"), ("triangle", "△"), ("imath", "i"), ("Re", "Re"), ("Im", "Im"),
];

/// Function names, as commands or plain words, and their canonical names.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("frac", "frac"), ("dfrac", "frac"), ("tfrac", "frac"), ("cfrac", "frac"), ("sqrt", "sqrt"), ("binom", "binom"), ("dbinom", "binom"),
    ("tbinom", "binom"), ("sin", "sin"), ("cos", "cos"), ("tan", "tan"), ("sec", "sec"), ("csc", "csc"), ("cot", "cot"), ("arcsin", "arcsin"), ("arccos", "arccos"),
    ("arctan", "arctan"), ("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"), ("sinh", "sinh"), ("cosh", "cosh"), ("tanh", "tanh"),
    ("ln", "ln"), ("log", "log"), ("lg", "lg"), ("exp", "exp"), ("gcd", "gcd"), ("lcm", "lcm"), ("min", "min"), ("max", "max"), ("abs", "abs"),
    ("floor", "floor"), ("ceil", "ceil"), ("sum", "sum"), ("prod", "product"), ("overline", "overline"), ("bar", "overline"), ("vec", "vec"),
    ("overrightarrow", "vec"), ("hat", "hat"), ("tilde", "tilde"), ("dot", "dot"), ("pmod", "pmod"), ("mod", "mod"), ("int", "opaque"), ("lim", "opaque"),
    ("iint", "opaque"), ("oint", "opaque"), ("det", "opaque"), ("underbrace", "opaque"), ("widehat", "hat"), ("cbrt", "cbrt"),
];

/// Words that are units wherever they follow a number or an expression.
pub const UNITS: &[&str] = &[
    "cm", "mm", "km", "dm", "nm", "kg", "mg", "ml", "lb", "lbs", "oz", "ft", "yd", "mi", "hr", "hrs", "min", "mins", "sec", "secs", "ms", "mph", "kph",
    "kmh", "mol", "hz", "pa", "kj", "ev", "kw", "cc", "rad", "rads", "radians", "radian", "inch", "inches", "foot", "feet", "yard", "yards", "mile", "miles", "meter", "meters",
    "metre", "metres", "centimeter", "centimeters", "kilometer", "kilometers", "millimeter", "millimeters", "gram", "grams", "kilogram", "kilograms", "liter", "liters", "litre", "litres", "pound", "pounds", "ounce",
    "ounces", "gallon", "gallons", "second", "seconds", "minute", "minutes", "hour", "hours", "day", "days", "week", "weeks", "month", "months", "year", "years", "dollar", "dollars", "cent", "cents",
    "unit", "units", "square", "cubic", "sq", "cu", "per", "newton", "newtons", "joule", "joules", "watt", "watts", "volt", "volts",
];

/// Joining words of Chinese that carry no value.
pub const CJK_STOP: &[&str] = &["约", "大约", "元", "度"];
