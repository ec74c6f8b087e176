//! Joins engine, kinds and models into the program `pipeline`. Only this crate prints: results go to stdout,
//! everything else to stderr.

mod args;
mod commands;
mod estimate;
mod exit;
mod local;
mod models;
mod output;
mod progress;
mod session;
mod text;

use std::process::ExitCode;

use clap::Parser;
use pipeline_engine::Registry;

pub use exit::Exit;

/// Every kind of this program, in the order data meets them.
pub fn registry() -> Registry {
    Registry::new(&[stage_curate::STAGES, stage_relational::STAGES, stage_phases::STAGES])
}

/// Runs the program with the arguments of this process and the kinds of `registry`.
pub fn main(registry: &Registry) -> ExitCode {
    // this program is also what shuts programs of the data in
    stage_verify::sandbox::supervise_if_asked();
    let arguments = match args::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap prints help and version to stdout, mistakes to stderr
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    run(arguments, registry).into()
}

fn run(arguments: args::Arguments, registry: &Registry) -> Exit {
    use args::Command;
    let outcome = match arguments.command {
        Command::Run(arguments) => commands::run::run(&arguments, registry),
        Command::Plan(arguments) => commands::plan::plan(&arguments, registry),
        Command::Check(arguments) => commands::plan::check(&arguments, registry),
        Command::Status(arguments) => commands::status::status(&arguments, registry),
        Command::Try(arguments) => commands::try_out::try_out(&arguments, registry),
        Command::Show(arguments) => commands::show::show(&arguments, registry),
        Command::Export(arguments) => commands::export::export(&arguments, registry),
        Command::Kinds(arguments) => commands::kinds::kinds(&arguments, registry),
        Command::Verify(arguments) => commands::verify::verify(&arguments),
        Command::Calls(arguments) => commands::calls::calls(&arguments),
        Command::Clean(arguments) => commands::clean::clean(&arguments, registry),
        Command::Serve(arguments) => commands::serve::serve(&arguments),
        Command::Worker(arguments) => return commands::worker::worker(&arguments, registry),
    };
    match outcome {
        Ok(exit) => exit,
        Err(failure) => {
            output::error(&failure.message);
            failure.exit
        }
    }
}
