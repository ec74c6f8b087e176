//! Each verdict on programs of our own, and what must not pass for right.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may stop")]

mod code_stand;

use code_stand::sandbox;
use serde_json::{Value, json};
use stage_verify::code::{CodeError, Judge, Ran, Report, Tests, Toolchain, Toolchains, Verdicts, verify};
use stage_verify::sandbox::Cgroups;
use stage_verify::{Extraction, Verdict};

fn with_judge<T>(act: impl FnOnce(&Judge<'_>) -> T) -> T {
    let toolchains = Toolchains::found();
    let sandbox = sandbox(&toolchains, Cgroups::Auto);
    act(&Judge::new(&sandbox, &toolchains))
}

fn report(judge: &Judge<'_>, language: &str, source: &str, tests: &str) -> Result<Report, CodeError> {
    judge.run(language, source, &Tests::parse(tests).unwrap())
}

/// Programs with the verdict that they get for these tests.
fn all(judge: &Judge<'_>, language: &str, tests: &Value, programs: &[(Ran, &str)]) {
    for (expected, program) in programs {
        let found = report(judge, language, program, &tests.to_string()).unwrap();
        assert_eq!(found.overall, *expected, "{program}\n{}", found.detail);
        assert!(!found.detail.contains(char::is_control), "{:?}", found.detail);
        assert_eq!(found.overall == Ran::Accepted, found.detail.is_empty());
    }
}

fn sums(compare: &str) -> Value {
    let cases = json!([{"input": "2 3\n", "output": "5\n"}, {"input": "-7 7", "output": "0"}]);
    let limits = json!({"time_s": 1, "memory_mb": 128, "output_mb": 1});
    json!({"type": "stdin", "cases": cases, "compare": compare, "limits": limits})
}

#[test]
fn every_verdict_on_python_programs_has_its_cause() {
    with_judge(|judge| {
        let programs = [
            (Ran::Accepted, "print(sum(map(int, input().split())))"),
            (
                Ran::Accepted,
                "import sys\nsys.stdout.buffer.write(b'%d' % sum(map(int, sys.stdin.buffer.read().split())))",
            ),
            (Ran::Accepted, "if __name__ == '__main__':\n    print(sum(map(int, input().split())))\n    exit()"),
            (Ran::WrongAnswer, "print(5)"),
            (Ran::WrongAnswer, "pass"),
            (Ran::RuntimeError, "print(sum(map(int, input().split())))\nraise ValueError('\\x1b[31m\\n')"),
            (Ran::RuntimeError, "print(sum(map(int, input().split())))\nimport os\nos._exit(3)"),
            (Ran::RuntimeError, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"),
            (Ran::RuntimeError, "eval('1 +')"),
            (Ran::TimeLimit, "while True: pass"),
            (Ran::MemoryLimit, "a = []\nwhile True: a.append(b'1' * (8 << 20))"),
            (Ran::OutputLimit, "while True: print('a' * 65536)"),
            (Ran::CompileError, "print(1"),
            (Ran::CompileError, "if 1:\nprint(1)"),
            (Ran::CompileError, "x = 'a\0'"),
        ];
        all(judge, "python", &sums("tokens"), &programs);
    });
}

#[test]
fn every_verdict_on_cpp_programs_has_its_cause() {
    let sum = "#include <iostream>\nint main() { long a, b; std::cin >> a >> b; std::cout << a + b; ";
    with_judge(|judge| {
        let programs = [
            (Ran::Accepted, format!("{sum}}}")),
            (Ran::RuntimeError, format!("{sum} return 1; }}")),
            (Ran::RuntimeError, format!("#include <cstdlib>\n{sum} std::abort(); }}")),
            (Ran::WrongAnswer, "int main() {}".to_string()),
            (Ran::TimeLimit, "int main() { volatile int x = 1; while (x) {} }".to_string()),
            (
                Ran::MemoryLimit,
                "#include <vector>\nint main() { std::vector<std::vector<char>> a; for (;;) a.emplace_back(8 << 20, 'a'); }"
                    .to_string(),
            ),
            (Ran::CompileError, "int main() { return x; }".to_string()),
            (Ran::CompileError, "int f() { return 1; }".to_string()),
        ];
        let programs: Vec<_> = programs.iter().map(|(ran, program)| (*ran, program.as_str())).collect();
        all(judge, "c++", &sums("tokens"), &programs);
        let refused =
            report(judge, "cpp", "#include \"/etc/passwd\"\nint main() {}", &sums("tokens").to_string()).unwrap();
        assert_eq!(refused.overall, Ran::CompileError);
        assert!(!refused.detail.contains("root"), "{}", refused.detail);
    });
}

/// Nor does a wrapper that catches the exception and exits well: its output is judged too.
#[test]
fn an_empty_expected_output_does_not_hide_a_failing_program() {
    let tests = json!({"type": "stdin", "cases": [{"input": "x", "output": ""}]});
    with_judge(|judge| {
        let programs = [
            (Ran::Accepted, "input()"),
            (Ran::RuntimeError, "int(input())"),
            (Ran::RuntimeError, "import sys\nsys.exit(1)"),
            (Ran::RuntimeError, "import sys\nsys.exit('bad')"),
            (Ran::WrongAnswer, "try:\n    int(input())\nexcept ValueError as error:\n    print(error)"),
            (Ran::CompileError, "def"),
        ];
        all(judge, "python", &tests, &programs);
    });
}

#[test]
fn a_null_stdin_is_no_input_and_never_the_word_none() {
    for case in [json!({"output": "''"}), json!({"input": null, "output": "''"}), json!({"input": "", "output": "''"})]
    {
        let tests = json!({"type": "stdin", "cases": [case]});
        let open = json!([{"input": null, "output": "''", "testtype": "stdin"}]);
        with_judge(|judge| {
            for tests in [&tests, &open] {
                all(judge, "python", tests, &[(Ran::Accepted, "import sys\nprint(repr(sys.stdin.read()))")]);
            }
        });
    }
}

#[test]
fn what_is_not_the_programs_doing_is_an_error_and_no_verdict() {
    let tests = sums("tokens").to_string();
    with_judge(|judge| {
        let missing = report(judge, "cobol", "", &tests).unwrap_err();
        assert!(matches!(&missing, CodeError::NoToolchain { language, .. } if language == "cobol"), "{missing}");
        let no_driver = report(judge, "cpp", "", r#"["assert f()"]"#).unwrap_err();
        assert!(matches!(no_driver, CodeError::NoDriver { .. }), "{no_driver}");
        for broken in [r#"["assert f("]"#, r#"{"type":"assert","setup":"1/0","asserts":["assert f()"]}"#] {
            let broken = report(judge, "python", "def f(): return True", broken).unwrap_err();
            assert!(matches!(broken, CodeError::BrokenTests { .. }), "{broken}");
        }
    });
    let mut python = Toolchains::found().get("python").unwrap().clone();
    python.run.insert(1, "--no-such-option".to_string());
    let toolchains = Toolchains::default().with("python", python);
    let sandbox = sandbox(&toolchains, Cgroups::Auto);
    let broken = report(&Judge::new(&sandbox, &toolchains), "python", "print(5)", &tests).unwrap_err();
    assert!(matches!(broken, CodeError::BrokenToolchain { .. }), "{broken}");
}

/// Each process of the chain looks harmless; their number and their memory together are limited.
#[test]
fn a_chain_of_processes_is_cut_off_and_leaves_nothing() {
    let tests = json!({"type": "stdin", "cases": [{"output": "done"}], "limits": {"time_s": 2, "processes": 16, "memory_mb": 128}});
    let chain = "import os, time\nfor step in range(100000):\n    try:\n        if os.fork(): os._exit(0)\n    except OSError: break\n    \
                 if step % 10 == 9 and os.fork() == 0:\n        data = b'1' * (16 << 20)\n        time.sleep(100)\n";
    with_judge(|judge| {
        let found = report(judge, "python", chain, &tests.to_string()).unwrap();
        assert_ne!(found.overall, Ran::Accepted);
        assert!(found.tests[0].usage.peak_memory_bytes < 512 << 20);
        all(judge, "python", &tests, &[(Ran::Accepted, "print('done')")]);
    });
}

fn calls(entry: &str, cases: &Value) -> Value {
    json!({"type": "function", "entry": entry, "cases": cases, "limits": {"time_s": 2, "memory_mb": 128, "output_mb": 1}})
}

#[test]
fn a_call_is_right_only_by_the_plain_value_it_returns() {
    let tests = calls("f", &json!([{"args": [2, 3], "expected": 5}, {"args": [1, 1], "expected": 2}]));
    with_judge(|judge| {
        let programs = [
            (Ran::Accepted, "def f(a, b): return a + b"),
            (Ran::Accepted, "class Solution:\n    def f(self, a, b):\n        print('debug')\n        return a + b"),
            (Ran::Accepted, "f = lambda *values: float(sum(values))"),
            (Ran::WrongAnswer, "def f(a, b): return a - b"),
            (Ran::WrongAnswer, "def f(a, b): print(a + b)"),
            (Ran::WrongAnswer, "def f(a, b): return str(a + b)"),
            (Ran::WrongAnswer, "def f(a, b): return float('nan')"),
            (Ran::WrongAnswer, "def f(a, b): return (x for x in [a + b])"),
            (
                Ran::WrongAnswer,
                "class I(int):\n    __eq__ = lambda *_: True\n    __hash__ = int.__hash__\ndef f(a, b): return I(a + b)",
            ),
            (Ran::WrongAnswer, "def f(a, b):\n    x = []\n    x.append(x)\n    return x"),
            (Ran::RuntimeError, "def f(a): return a"),
            (Ran::RuntimeError, "def g(a, b): return a + b"),
            (Ran::RuntimeError, "def f(a, b): raise SystemExit(0)"),
            (Ran::RuntimeError, "def f(a, b):\n    import os\n    os._exit(0)"),
            (Ran::RuntimeError, "def f(a, b):\n    import os\n    os.write(3, b'value 5\\n')\n    return a + b"),
            (Ran::RuntimeError, "def f(a, b): return f(a, b)"),
            (Ran::RuntimeError, "n = int(input())\ndef f(a, b): return a + b"),
            (Ran::TimeLimit, "def f(a, b):\n    while True: pass"),
            (Ran::MemoryLimit, "def f(a, b): return len([b'1' * (8 << 20) for _ in range(1000)])"),
            (Ran::OutputLimit, "def f(a, b):\n    while True: print('a' * 1000)"),
            (Ran::CompileError, "def f(a, b) return a"),
        ];
        all(judge, "python", &tests, &programs);
    });
}

#[test]
fn values_go_in_and_come_back_without_loss() {
    let value = json!({"text": "a\"\\\n数🙂\u{2028}", "list": [[], {}, null, true, -1, 0.1, 1e300], "1": {"2": 3}});
    let tests = calls("f", &json!([{"args": [value], "expected": value}])).to_string();
    let big = "1".repeat(6000);
    let bigs = format!(r#"{{"type":"function","entry":"f","cases":[{{"args":[{big}],"expected":{big}}}]}}"#);
    with_judge(|judge| {
        for tests in [&tests, &bigs] {
            assert_eq!(report(judge, "python", "def f(x): return x", tests).unwrap().overall, Ran::Accepted);
        }
        assert_eq!(report(judge, "python", "def f(x): return x + 1", &bigs).unwrap().overall, Ran::WrongAnswer);
        let counts = calls("f", &json!([{"args": ["aab"], "expected": {"a": 2, "b": 1}}]));
        let tuples = calls("f", &json!([{"args": [], "expected": [[1, 2], {"1": 0.5}]}]));
        all(judge, "python", &counts, &[(Ran::Accepted, "def f(s): return Counter(s)")]);
        all(judge, "python", &tuples, &[(Ran::Accepted, "def f(): return ((1, 2), {1: 0.5})")]);
    });
}

#[test]
fn one_case_leaves_nothing_to_the_next() {
    let tests = calls("f", &json!([{"args": [], "expected": 1}, {"args": [], "expected": 1}]));
    with_judge(|judge| {
        let program = "seen = []\ndef f():\n    seen.append(1)\n    open('/tmp/seen', 'a').write('1')\n    return len(seen) + len(open('/tmp/seen').read()) - 1";
        all(judge, "python", &tests, &[(Ran::Accepted, program)]);
    });
}

#[test]
fn assertions_pass_only_when_the_last_one_has_been_passed() {
    let tests = json!(["assert f(1) == 2", "assert f(2) == 3"]);
    with_judge(|judge| {
        let programs = [
            (Ran::Accepted, "def f(x): return x + 1"),
            (Ran::Accepted, "def f(x: Optional[int]) -> int: return x + 1"),
            (Ran::WrongAnswer, "def f(x): return 2"),
            (Ran::WrongAnswer, "def f(x): return x"),
            (Ran::RuntimeError, "def f(x): raise SystemExit(0)"),
            (Ran::RuntimeError, "import os\nos._exit(0)"),
            (Ran::RuntimeError, "import sys\nsys.exit(0)"),
            (Ran::RuntimeError, "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return x + 1"),
            (
                Ran::RuntimeError,
                "import atexit, os\natexit.register(lambda: (print('ALL PASSED'), os._exit(0)))\nexit()",
            ),
            (Ran::RuntimeError, "print('done 2')\nraise KeyboardInterrupt"),
            (
                Ran::RuntimeError,
                "import os\nos.write(3, b'passed [0, \"\"]\\npassed [1, \"\"]\\ndone 2\\n')\nos._exit(0)",
            ),
            (Ran::RuntimeError, "import builtins\nbuiltins.AssertionError = int\nx = 1"),
            (Ran::WrongAnswer, "import builtins\nbuiltins.AssertionError = SystemExit\ndef f(x): return 0"),
            (Ran::TimeLimit, "while True: pass"),
            (Ran::CompileError, "def f(x) return x"),
        ];
        let tests = json!({"type": "assert", "asserts": tests, "limits": {"time_s": 2}});
        all(judge, "python", &tests, &programs);
        let found = report(judge, "python", "def f(x): return 2", &tests.to_string()).unwrap();
        assert!(found.in_process);
        assert_eq!((found.tests.len(), found.detail.as_str()), (2, "test 2 of 2: `assert f(2) == 3` does not hold"));
    });
}

#[test]
fn a_setup_may_stand_before_the_program_or_speak_of_it() {
    let before = json!({"type": "assert", "setup": "class Node:\n    value = 1", "asserts": ["assert f(Node()) == 1"]});
    let after = json!({"test_list": ["assert f(root) == 1"], "test_setup_code": "root = Node()"});
    let open = json!({"test": "def check(candidate):\n    assert candidate(helped(1)) == 1\n", "entry_point": "f", "prompt": "def helped(x):\n    return x\n"});
    with_judge(|judge| {
        all(judge, "python", &before, &[(Ran::Accepted, "def f(node: Node): return node.value")]);
        all(judge, "python", &after, &[(Ran::Accepted, "class Node: value = 1\ndef f(node): return node.value")]);
        all(judge, "python", &open, &[(Ran::Accepted, "def f(x): return x"), (Ran::WrongAnswer, "def f(x): return 0")]);
    });
}

#[test]
fn open_forms_are_judged_like_our_own() {
    let wrapped = json!({"fn_name": "f", "inputs": [[1, 2]], "outputs": [[3]]});
    let plain = json!({"fn_name": "f", "inputs": [[1, 2]], "outputs": [3]});
    let lines = json!([{"input": "1\n2", "output": "3", "testtype": "functional", "metadata": {"func_name": "f"}}]);
    with_judge(|judge| {
        for tests in [&wrapped, &plain, &lines] {
            let programs = [
                (Ran::Accepted, "class Solution:\n    def f(self, a, b): return a + b"),
                (Ran::WrongAnswer, "def f(a, b): return a"),
            ];
            all(judge, "python", tests, &programs);
        }
        let texts = json!({"inputs": ["1\n2\n"], "outputs": ["0.5\n3"]});
        let program = "a = int(input())\nb = int(input())\nprint(a / b + 1e-9)\n";
        all(
            judge,
            "python",
            &texts,
            &[(Ran::Accepted, &format!("{program}print(a + b)")), (Ran::WrongAnswer, program)],
        );
    });
}

#[test]
fn another_language_comes_by_configuration() {
    let text = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let shell = Toolchain {
        file: "main.sh".to_string(),
        compile: None,
        run: text(&["/bin/sh", "main.sh"]),
        roots: Vec::new(),
        environment: vec![("GREETING".to_string(), "hello".to_string())],
        processes: 0,
        version: "sh".to_string(),
        probe: "echo $((6 * 7))".to_string(),
    };
    let toolchains = Toolchains::found().with("Shell", shell);
    let sandbox = sandbox(&toolchains, Cgroups::Auto);
    let judge = Judge::new(&sandbox, &toolchains);
    let tests = json!({"type": "stdin", "language": "shell", "cases": [{"input": "you\n", "output": "hello you"}]});
    let programs = [(Ran::Accepted, "read name; echo $GREETING $name"), (Ran::RuntimeError, "exit 2")];
    all(&judge, "shell", &tests, &programs);
    let tests = Tests::parse(&tests.to_string()).unwrap();
    let trace = "```python\nprint(1)\n```\n```shell\nread name; echo $GREETING $name\n```\n```text\nhello\n```\n";
    assert_eq!(verify(&judge, &tests, trace, Extraction::Strict).unwrap().verdict, Verdict::Correct);
}

#[test]
fn all_tests_are_run_when_they_are_asked_for() {
    let toolchains = Toolchains::found();
    let sandbox = sandbox(&toolchains, Cgroups::Auto);
    let judge = Judge::new(&sandbox, &toolchains).all_tests();
    let cases =
        |count: i32| (0..count).map(|index| json!({"input": index.to_string(), "output": "1"})).collect::<Vec<_>>();
    let found =
        report(&judge, "python", "print(input())", &json!({"type": "stdin", "cases": cases(3)}).to_string()).unwrap();
    let ran: Vec<_> = found.tests.iter().map(|test| test.ran).collect();
    assert_eq!(ran, [Ran::WrongAnswer, Ran::Accepted, Ran::WrongAnswer]);
    assert_eq!((found.overall, found.passed(), found.count), (Ran::WrongAnswer, 1, 3));
    assert_eq!(found.detail, "test 1 of 3: got `0`, expected `1` at token 1");
    let asserts = json!(["assert f() == 2", "assert f() == 1", "assert g()"]).to_string();
    let found = report(&judge, "python", "def f(): return 1", &asserts).unwrap();
    let ran: Vec<_> = found.tests.iter().map(|test| test.ran).collect();
    assert_eq!(ran, [Ran::WrongAnswer, Ran::Accepted, Ran::RuntimeError]);
}

#[test]
fn reports_are_kept_by_all_that_decides_them_and_survive_a_cut_line() {
    let folder = tempfile::tempdir().unwrap();
    let toolchains = Toolchains::found();
    let sandbox = sandbox(&toolchains, Cgroups::Auto);
    let tests = sums("tokens").to_string();
    let first = {
        let verdicts = Verdicts::open(folder.path()).unwrap();
        let judge = Judge::new(&sandbox, &toolchains).with_verdicts(&verdicts);
        let first = std::thread::scope(|scope| {
            let same: Vec<_> =
                (0..4).map(|_| scope.spawn(|| report(&judge, "python", "print(5)", &tests).unwrap())).collect();
            same.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
        });
        // one run for all four: a second would have other times
        assert!(first.iter().all(|report| *report == first[0]));
        report(&judge, "python", "print(0)", &tests).unwrap();
        report(&judge, "cobol", "", &tests).unwrap_err();
        report(&judge, "python", "import time\ntime.sleep(100)", &tests).unwrap();
        assert_eq!(verdicts.len(), 2);
        first[0].clone()
    };
    let file = folder.path().join("000000.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 9]).unwrap();
    let verdicts = Verdicts::open(folder.path()).unwrap();
    assert_eq!(verdicts.len(), 1);
    let judge = Judge::new(&sandbox, &toolchains).with_verdicts(&verdicts);
    assert_eq!(report(&judge, "python", "print(5)", &tests).unwrap(), first);
    report(&judge, "python", "print(0)", &tests).unwrap();
    assert_eq!((verdicts.len(), Verdicts::open(folder.path()).unwrap().len()), (2, 2));
    assert!(folder.path().join("000001.jsonl").exists());
}

#[test]
fn a_trace_gets_the_verdict_of_its_program() {
    let tests = Tests::parse(&sums("tokens").to_string()).unwrap();
    let right = "Add them.\n```python\nprint(sum(map(int, input().split())))\n```\n";
    with_judge(|judge| {
        let judged = |trace: &str| verify(judge, &tests, trace, Extraction::Strict).unwrap();
        let found = judged(right);
        assert_eq!((found.verdict, found.tier, &*found.reason), (Verdict::Correct, "stdin", "accepted: 2 tests"));
        assert_eq!(found.answer.as_deref(), Some("print(sum(map(int, input().split())))\n"));
        let found = judged("```py\nprint(5)\n```");
        assert_eq!(found.verdict, Verdict::Incorrect);
        assert_eq!(found.reason, "wrong_answer: test 2 of 2: got `5`, expected `0` at token 1");
        let cpp = "```\n#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }\n```";
        assert_eq!(judged(cpp).verdict, Verdict::Correct);
        assert_eq!((judged("print(5)").verdict, &*judged("print(5)").reason), (Verdict::NoAnswer, "unmarked"));
        assert_eq!(&*judged("<think>```python\nprint(5)\n```").reason, "truncated");
        let java = judged("```java\nclass A {}\n```");
        assert_eq!(
            (java.verdict, &*java.reason),
            (Verdict::Undecided, "other_language: the program is written in `java`")
        );
        let broken = Tests::parse(r#"["assert f("]"#).unwrap();
        let found = verify(judge, &broken, right, Extraction::Strict).unwrap();
        assert_eq!(found.verdict, Verdict::LabelUnparsable);
        println!("{}", found.reason);
    });
}
