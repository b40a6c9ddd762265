//! Prometheus' older text format, for all who do not ask for OpenMetrics.

/// Media type of the format.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether the values of an `Accept` header do not name OpenMetrics. Prometheus does; browsers, which would offer it as a
/// download, and curl do not.
pub fn is_preferred(accept: &[&str]) -> bool {
    !accept.iter().flat_map(|value| value.split(',')).any(|one| {
        let named = one.split(';').next().unwrap_or_default();
        named.trim().eq_ignore_ascii_case("application/openmetrics-text")
    })
}

/// Converts text in the OpenMetrics format. There, families of counters and infos have names without the suffixes of
/// their samples.
pub fn from_open_metrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(described) = line.strip_prefix("# HELP ") else {
            if !line.starts_with("# UNIT ") && line != "# EOF" {
                plain.extend([line, "\n"]);
            }
            continue;
        };
        let (name, help) = described.split_once(' ').unwrap_or((described, ""));
        // The encoder writes the type right after the text of help.
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).unwrap_or("untyped");
        let (suffix, kind) = match kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            other => ("", other),
        };
        plain.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_do_not_name_open_metrics_get_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert!(!is_preferred(&[prometheus]));
        assert!(is_preferred(&["*/*"]));
        assert!(is_preferred(&[]));
        assert!(is_preferred(&["text/plain"]));
        assert!(is_preferred(&["text/html,application/xhtml+xml,*/*;q=0.8"]));
        assert!(!is_preferred(&["text/plain", "application/openmetrics-text"]));
    }

    #[test]
    fn suffixes_of_samples_become_part_of_the_names_of_families() {
        let text = "# HELP a_bytes Size.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{t=\"# EOF\"} 3\n\
                    # HELP b Build.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c Items.\n# TYPE c gauge\nc 2\n# EOF\n";
        let plain = "# HELP a_bytes_total Size.\n# TYPE a_bytes_total counter\na_bytes_total{t=\"# EOF\"} 3\n\
                     # HELP b_info Build.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n\
                     # HELP c Items.\n# TYPE c gauge\nc 2\n";
        assert_eq!(from_open_metrics(text), plain);
    }
}
