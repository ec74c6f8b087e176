//! `pipeline try`: a few rows through one stage, with what models were asked and what they said. Nothing is committed;
//! model answers are kept.

use std::fmt::Write as _;
use std::sync::Arc;

use pipeline_core::json_rows::to_json;
use pipeline_core::table_io::TableFile;
use pipeline_engine::Registry;
use pipeline_engine::record::reasons;
use pipeline_models::{Message, Recorded, Request};
use stage_curate::{Exchange, Exchanges};

use super::show::readable;
use crate::args::Try;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::progress::Lines;
use crate::session::{Options, Session};

/// Most exchanges that are shown.
const SHOWN: usize = 50;

/// Runs the command.
pub fn try_out(arguments: &Try, registry: &Registry) -> Result<Exit, Failure> {
    let options = Options { offline: arguments.offline, jobs: Some(1), unsafe_no_sandbox: arguments.unsafe_no_sandbox };
    let mut session = Session::open(&arguments.project, registry, options)?;
    let exchanges = Arc::new(Exchanges::default());
    session.env.services.insert(Arc::clone(&exchanges));
    let index = session.stage(&arguments.stage)?;
    session.listen_for_signals()?;
    session.store.create()?;
    let events = Lines::new(session.currency());
    let tried = session.runner(&events).try_out(index, arguments.rows);
    // what was asked helps all the more when the stage failed
    show_exchanges(&exchanges.taken());
    let tried = tried?;
    let files = tried.success.outputs.values().flat_map(|output| &output.files).chain(&tried.success.rejects);
    let mut number = 0;
    for file in files {
        let table = TableFile::open(&tried.folder().join(&file.file))?;
        for batch in table.read(0, file.rows, None)? {
            for row in to_json(&batch?) {
                number += 1;
                output::line(readable(number, &row, false));
            }
        }
    }
    let counts = &tried.success.counts;
    output::note(format!(
        "{} read, {} kept, {} rejected{}; nothing was committed",
        counts.read,
        counts.kept,
        counts.rejected_total(),
        reasons(&counts.rejected)
    ));
    Ok(Exit::Done)
}

fn show_exchanges(exchanges: &[Exchange]) {
    for (number, exchange) in (1..).zip(exchanges.iter().take(SHOWN)) {
        output::line(exchange_text(number, exchange));
    }
    if exchanges.len() > SHOWN {
        output::line(format!("── {} further requests are not shown ──", exchanges.len() - SHOWN));
    }
}

/// A request as the model saw it and what it said, for a person: texts as they are, line by line.
fn exchange_text(number: usize, exchange: &Exchange) -> String {
    let Request { messages, sampling, sample, schema, attempt, .. } = &exchange.request;
    let mut text = format!("── request {number} to {} ──", exchange.model);
    for message in messages {
        let _ = write!(text, "\n  {}:{}", message.role, block(&content(message)));
    }
    if let Some(schema) = schema {
        let _ = write!(text, "\n  schema:{}", block(schema));
    }
    let _ =
        write!(text, "\n  temperature {}, max_tokens {}, sample {sample}", sampling.temperature, sampling.max_tokens);
    if *attempt > 0 {
        let _ = write!(text, ", asking {}", attempt + 1);
    }
    match &exchange.recorded {
        Recorded::Answer(answer) => {
            let finish = answer.finish_reason.as_deref().unwrap_or("no finish reason");
            let tokens = answer.completion_tokens.map_or_else(String::new, |tokens| format!(", {tokens} tokens"));
            if let Some(reasoning) = &answer.reasoning {
                let _ = write!(text, "\n  reasoning:{}", block(reasoning));
            }
            let _ = write!(text, "\n  answer ({finish}{tokens}):{}", block(&answer.answer_text));
        }
        Recorded::RowError { code, message } => {
            let _ = write!(text, "\n  no answer, ever: {code}: {message}");
        }
        Recorded::Missing => text += "\n  no answer yet: the call failed for a passing reason",
    }
    text
}

fn content(message: &Message) -> String {
    match &message.tool_calls {
        Some(calls) => format!("{}\n{calls}", message.content),
        None => message.content.clone(),
    }
}

/// Lines of a text, set in.
fn block(text: &str) -> String {
    text.trim_end().split('\n').fold(String::new(), |mut set, line| {
        let _ = write!(set, "\n    {line}");
        set
    })
}

#[cfg(test)]
mod tests {
    use pipeline_models::Sampling;

    use super::*;

    #[test]
    fn texts_are_shown_as_they_are() {
        let messages = vec![Message::new("user", "求 \\frac{1}{2}\n的值。")];
        let request = Request::new(messages, Sampling::full(1.0, 8), 2);
        let recorded = Recorded::RowError { code: "context_exceeded".to_owned(), message: "too long".to_owned() };
        let exchange = Exchange { model: "m@1".to_owned(), request, recorded };
        let expected = "── request 1 to m@1 ──\n  user:\n    求 \\frac{1}{2}\n    的值。\n  \
            temperature 1, max_tokens 8, sample 2\n  no answer, ever: context_exceeded: too long";
        assert_eq!(exchange_text(1, &exchange), expected);
    }
}
