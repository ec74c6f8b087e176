//! What programs in the sandbox can reach.

#![cfg(target_os = "linux")]

#[cfg(test)]
mod rig;

use rig::{print_of, sandbox};

#[test]
fn a_program_runs_in_its_work_folder_with_a_made_up_environment() {
    let Some(sandbox) = sandbox() else { return };
    println!("{}", sandbox.layers());
    let seen =
        print_of(&sandbox, "import os; print(os.getcwd(), sorted(os.environ.items()), os.getuid(), os.listdir('.'))");
    assert_eq!(
        seen,
        "/box/work [('HOME', '/box/work'), ('LANG', 'C.UTF-8'), ('PATH', '/usr/local/bin:/usr/bin:/bin'), \
         ('TMPDIR', '/box/tmp')] 1000 []"
    );
}
