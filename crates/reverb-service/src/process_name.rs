//! The name with which a process introduces itself to servers.

use std::ffi::OsString;
use std::path::Path;

/// The module that runs the kernel of a notebook.
const KERNEL: &str = "ipykernel_launcher";

/// Returns the name with which this process introduces itself: the program, the machine and the process id.
pub fn process_name() -> String {
    let program = program(std::env::args_os());
    format!("{program} ({}:{})", host_name(), std::process::id())
}

/// Returns the name of this machine. `localhost` if the system does not tell.
pub fn host_name() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the pointer and the length belong to `name`.
    let result = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let name = String::from_utf8_lossy(&name[..length]);
    if result == 0 && !name.is_empty() { name.into_owned() } else { "localhost".into() }
}

/// Returns what runs: the script or the module of a Python interpreter, otherwise the executable.
fn program(mut arguments: impl Iterator<Item = OsString>) -> String {
    let first = arguments.next().or_else(|| std::env::current_exe().ok().map(OsString::from)).unwrap_or_default();
    let executable = file_name(&first);
    let is_python = ["python", "pypy"].iter().any(|name| executable.to_ascii_lowercase().starts_with(name));
    let program = if is_python { python_program(arguments) } else { None };
    let program = program.unwrap_or(executable);
    if program == KERNEL { "notebook".into() } else { program }
}

/// Returns the script or the module that the interpreter runs. `None` for commands, standard input and a prompt.
fn python_program(mut arguments: impl Iterator<Item = OsString>) -> Option<String> {
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "-" {
            return None;
        }
        if text.starts_with("--") {
            if text == "--check-hash-based-pycs" {
                arguments.next();
            }
            continue;
        }
        let Some(flags) = text.strip_prefix('-') else { return Some(file_name(&argument)) };
        // Several flags may share a dash. The argument of the last one may follow at once.
        if let Some(at) = flags.find(['m', 'c', 'W', 'X']) {
            let (flag, rest) = flags[at..].split_at(1);
            let value = if rest.is_empty() { arguments.next()?.to_string_lossy().into_owned() } else { rest.into() };
            match flag {
                "m" => return Some(value),
                "c" => return None,
                _ => {}
            }
        }
    }
    None
}

fn file_name(path: &OsString) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_what_it_runs() {
        let cases = [
            ("/usr/bin/python3 /home/me/learner.py --steps 3", "learner.py"),
            ("python -u -W ignore -Xfrozen_modules=off learner.py -m x", "learner.py"),
            ("python3.12 -m reverb.cli serve", "reverb.cli"),
            ("python -OOum actor", "actor"),
            ("python -mactor", "actor"),
            ("python /venv/bin/pytest -q", "pytest"),
            ("python --check-hash-based-pycs always learner.py", "learner.py"),
            ("/opt/python -m ipykernel_launcher -f kernel.json", "notebook"),
            ("python3 -c import-reverb", "python3"),
            ("python3 -", "python3"),
            ("python3", "python3"),
            ("python3 -m", "python3"),
            ("/usr/bin/reverb_server --port 1", "reverb_server"),
        ];
        for (line, expected) in cases {
            assert_eq!(program(line.split(' ').map(OsString::from)), expected, "{line}");
        }
    }

    #[test]
    fn a_process_names_its_machine_and_its_number() {
        let name = process_name();
        assert!(name.ends_with(&format!(" ({}:{})", host_name(), std::process::id())), "{name}");
        assert!(!host_name().is_empty());
    }
}
