//! Tests of programs as people write them: every form is read, and what is misshapen is named with its place.

#![expect(clippy::unwrap_used, reason = "a test may stop")]

use stage_verify::code::{Tests, TestsError};

fn error(json: &str) -> String {
    Tests::parse(json).unwrap_err().to_string()
}

#[test]
fn every_form_is_read() {
    let forms = [
        (r#"{"type":"stdin","cases":[{"input":"1","output":"1"},{"output":""}],"compare":"float:1e-6"}"#, 2, "stdin"),
        (
            r#"{"type":"stdin","language":"C++","cases":[{"input_gen":{"prefix":"3\n","repeat":"1 ","times":3,"suffix":"\n"},"output_gen":{"repeat":"x","times":2}}]}"#,
            1,
            "stdin",
        ),
        (
            r#"{"type":"function","entry":"Solution.f","cases":[{"args":[],"expected":null}],"float_tol":0}"#,
            1,
            "function",
        ),
        (
            r#"{"type":"assert","setup":"import math","asserts":["assert f(1) == 2"],"limits":{"time_s":0.5}}"#,
            1,
            "assert_in_process",
        ),
        (r#"{"inputs":["1\n","2\n"],"outputs":["1\n",["2","3"]]}"#, 2, "stdin"),
        (r#"{"fn_name":"add","inputs":[[1,2],[3,4]],"outputs":[[3],7]}"#, 2, "function"),
        (r#"{"fn_name":"add","inputs":["1\n[2]"],"outputs":["[1,2]"]}"#, 1, "function"),
        (r#"[{"input":"1","output":"2","testtype":"stdin"}]"#, 1, "stdin"),
        (r#"[{"input":"[1]\n2","output":"3","testtype":"functional","metadata":{"func_name":"f"}}]"#, 1, "function"),
        (
            r#"[{"input":"[1]","output":"3","testtype":"functional","metadata":"{\"func_name\": \"f\"}"}]"#,
            1,
            "function",
        ),
        (r#"["assert f(1) == 2", "assert f(2) == 3"]"#, 2, "assert_in_process"),
        (
            r#"{"test":"def check(candidate):\n    assert candidate(1) == 2\n","entry_point":"f"}"#,
            1,
            "assert_in_process",
        ),
        (r#"{"test_list":["assert f(1) == 2"],"test_setup_code":"","challenge_test_list":[]}"#, 1, "assert_in_process"),
    ];
    for (json, count, tier) in forms {
        let tests = Tests::parse(json).unwrap_or_else(|error| panic!("{json}: {error}"));
        assert_eq!((tests.len(), tests.tier()), (count, tier), "{json}");
    }
    let tests = Tests::parse(forms[1].0).unwrap();
    assert_eq!(tests.language(), Some("cpp"));
    assert_eq!(Tests::parse(forms[2].0).unwrap().language(), Some("python"));
    assert_eq!(Tests::parse(forms[0].0).unwrap().language(), None);
}

/// "All of nothing passed" must never be a pass.
#[test]
fn zero_tests_are_an_error_and_never_a_pass() {
    for json in [
        r#"{"type":"stdin","cases":[]}"#,
        r#"{"type":"function","entry":"f","cases":[]}"#,
        r#"{"type":"assert","asserts":[]}"#,
        r#"{"inputs":[],"outputs":[]}"#,
        r#"{"test_list":[]}"#,
        "[]",
    ] {
        let found = Tests::parse(json);
        assert!(matches!(found, Err(TestsError::Empty { .. })), "{json}: {found:?}");
    }
    for json in ["", "null", "{}", "0", "\"\"", "gAAAAABl", r#"{"type":"stdin"}"#] {
        assert!(Tests::parse(json).is_err(), "{json}");
    }
}

#[test]
fn a_mistake_is_named_with_its_place_and_the_way_out() {
    let case = |case: &str| format!(r#"{{"type":"stdin","cases":[{{"output":""}},{case}]}}"#);
    assert!(
        error(&case(r#"{"output":"","inptu":""}"#))
            .contains("`cases[1]` of the tests: unknown key `inptu`; the keys are input,")
    );
    assert!(error(&case(r#"{"input":"1"}"#)).contains("cases[1].output"));
    assert!(
        error(&case(r#"{"input":5,"output":""}"#))
            .contains("`cases[1].input` of the tests: text was expected, here is a number")
    );
    assert!(error(&case(r#"{"input":"1","input_gen":{"repeat":"1","times":1},"output":""}"#)).contains("not both"));
    assert!(error(&case(r#"{"input_gen":{"repeat":"1","times":99999999999},"output":""}"#)).contains("longer than"));
    assert!(
        error(&case(r#"{"input_gen":{"repeat":"1","times":-1},"output":""}"#)).contains("cases[1].input_gen.times")
    );
    assert!(error(&case("7")).contains("`cases[1]` of the tests: an object was expected, here is a number"));
    assert!(
        error(r#"{"type":"stdin","cases":[{"output":""}],"compare":"fuzzy"}"#)
            .contains("`fuzzy` is none of exact, tokens")
    );
    assert!(error(r#"{"type":"program","cases":[]}"#).contains("none of stdin, function, assert"));
    assert!(error(r#"{"type":"stdin","cases":[{"output":""}],"float_tol":1}"#).contains("unknown key `float_tol`"));
    assert!(error(r#"{"type":"function","entry":"f(x)","cases":[]}"#).contains("`entry`"));
    assert!(error(r#"{"type":"function","entry":"f","cases":[{"args":5,"expected":5}]}"#).contains("cases[0].args"));
    assert!(error(r#"{"type":"function","entry":"f","cases":[{"args":[5]}]}"#).contains("cases[0].expected"));
    assert!(
        error(r#"{"type":"function","entry":"f","cases":[{"args":[],"expected":1}],"float_tol":-1}"#)
            .contains("float_tol")
    );
    assert!(error(r#"{"type":"assert","asserts":["assert 1", 5]}"#).contains("asserts[1]"));
    assert!(error(r#"{"inputs":["1"],"outputs":["1","2"]}"#).contains("2 outputs for 1 inputs"));
    assert!(error(r#"{"test":"assert f(1)","entry_point":"f"}"#).contains("check(candidate)"));
    assert!(error(r#"[{"input":"1","output":"2","testtype":"functional"}]"#).contains("metadata.func_name"));
    assert!(error(r#"{"fn_name":"f","inputs":["1\nx"],"outputs":["1"]}"#).contains("inputs[0], line 2"));
    assert!(error(r#"{"type":"stdin","cases":[{"output":""}"#).contains("not JSON"));
    let other = r#"{"type":"function","language":"cpp","entry":"f","cases":[{"args":[],"expected":1}]}"#;
    assert!(error(other).contains("`language` of the tests: this form calls Python"));
    assert!(error(r#"{"answer":5}"#).contains("state `type`"));
}

#[test]
fn limits_out_of_range_are_refused_by_name() {
    let with =
        |limits: &str| Tests::parse(&format!(r#"{{"type":"stdin","cases":[{{"output":""}}],"limits":{limits}}}"#));
    for bad in [
        r#"{"time_s":0}"#,
        r#"{"time_s":-1}"#,
        r#"{"time_s":1e999}"#,
        r#"{"time_s":"2"}"#,
        r#"{"time_s":601}"#,
        r#"{"memory_mb":NaN}"#,
        r#"{"memory_mb":1e9}"#,
        r#"{"processes":0}"#,
        r#"{"processes":1.5}"#,
        r#"{"disk_mb":0}"#,
        r#"{"compile_s":1e6}"#,
    ] {
        let name = bad.split('"').nth(1).unwrap();
        assert!(with(bad).unwrap_err().to_string().contains(&format!("limits.{name}")), "{bad}");
    }
    assert!(with(r#"{"memory":5}"#).unwrap_err().to_string().contains("unknown key `memory`"));
    assert!(with("5").is_err());
    let limits = *with(r#"{"time_s":2,"memory_mb":256,"output_mb":16,"processes":32,"disk_mb":32,"compile_s":10}"#)
        .unwrap()
        .limits();
    assert_eq!((limits.time_s, limits.processes, limits.compile_memory_mb), (2.0, 32, 1024.0));
}
