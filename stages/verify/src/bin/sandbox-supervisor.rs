//! Serves as supervisor of the sandbox for programs that cannot start themselves anew: tests, and users of the library.

fn main() {
    stage_verify::sandbox::supervise_if_asked();
}
