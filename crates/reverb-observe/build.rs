//! Packs the files of the live page.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    pack_page(Path::new("web"), &PathBuf::from(std::env::var("OUT_DIR")?))
}

/// Packs the files of the live page, and writes a list of them as Rust code.
fn pack_page(folder: &Path, out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={}", folder.display());
    std::fs::create_dir_all(out.join("web"))?;
    let mut files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.sort();
    let mut code = format!("static ASSETS: [Asset; {}] = [\n", files.len());
    for file in files {
        println!("cargo:rerun-if-changed={}", file.display());
        let name = file.file_name().and_then(|name| name.to_str()).ok_or("a name of a file is not UTF-8")?;
        let content_type = match file.extension().and_then(|extension| extension.to_str()) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => return Err(format!("{}: expected .html, .css, .js or .svg", file.display()).into()),
        };
        let packed = out.join("web").join(format!("{name}.gz"));
        let mut encoder = GzEncoder::new(std::fs::File::create(&packed)?, Compression::best());
        encoder.write_all(squeezed(&std::fs::read_to_string(&file)?, content_type).as_bytes())?;
        encoder.finish()?;
        code += &format!(
            "Asset {{ path: {name:?}, content_type: {content_type:?}, gzipped: include_bytes!({packed:?}) }},\n"
        );
    }
    std::fs::write(out.join("assets.rs"), code + "];\n")?;
    Ok(())
}

/// Leaves out what browsers do not need: lines of comments, indentation, line breaks inside brackets, commas and
/// semicolons before closing brackets, and spaces of style sheets. A test refuses files in which more would change.
fn squeezed(text: &str, content_type: &str) -> String {
    let is_style = content_type.starts_with("text/css");
    let mut is_comment = false;
    let mut kept = String::with_capacity(text.len());
    for line in text.lines().map(str::trim) {
        is_comment |= line.starts_with("/*");
        if !is_comment && !line.starts_with("//") && !line.is_empty() {
            if line.starts_with([')', ']', '}']) {
                kept.truncate(kept.trim_end_matches([',', ';']).len());
            } else if !(kept.is_empty() || kept.ends_with(['{', '(', '[', ',', ';']) || is_style && kept.ends_with('}'))
            {
                kept.push('\n');
            }
            kept += &if is_style { line.replace(": ", ":").replace(" {", "{") } else { line.into() };
        }
        is_comment &= !line.ends_with("*/");
    }
    kept
}
