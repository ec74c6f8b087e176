//! Results depend on neither threads nor the size of slices.

use crate::support::Project;

#[test]
fn any_number_of_jobs_gives_the_same_bytes() {
    let mut seen = Vec::new();
    for jobs in ["1", "2", "4"] {
        let project = Project::quickstart();
        project.run(&["--offline", "--jobs", jobs, "--shard-rows", "40"]).ok();
        let stages: Vec<String> = project.digests().into_keys().collect();
        let bytes: Vec<_> = stages.iter().map(|stage| project.bytes_of(stage)).collect();
        seen.push((stages, bytes));
    }
    assert!(seen[0].0.len() >= 12);
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn another_slice_size_gives_the_same_rows_in_the_same_order() {
    let projects: Vec<Project> = ["17", "50", "16384"]
        .iter()
        .map(|rows| {
            let project = Project::quickstart();
            project.run(&["--offline", "--shard-rows", rows]).ok();
            project
        })
        .collect();
    for stage in projects[0].digests().keys() {
        let rows: Vec<_> = projects.iter().map(|project| project.rows(stage, &[])).collect();
        assert_eq!(rows[0], rows[1], "{stage}");
        assert_eq!(rows[0], rows[2], "{stage}");
    }
}
