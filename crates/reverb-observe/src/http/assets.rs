//! The files of the live page, from the folder `web` of this crate. The build script packs them.

use super::admission::Route;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::read::GzDecoder;
use std::io::Read;

/// A file of the page.
struct Asset {
    path: &'static str,
    content_type: &'static str,
    gzipped: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The routes of the page: `/` and its files. They are open, because the page is what asks for a token.
pub fn routes() -> impl Iterator<Item = Route> {
    ASSETS.iter().map(|asset| {
        let path = if asset.path == "index.html" { "/".into() } else { format!("/{}", asset.path) };
        Route::open(path, get(async move |headers: HeaderMap| response(asset, &headers)))
    })
}

fn response(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let of_content = [(CONTENT_TYPE, asset.content_type), (VARY, "accept-encoding")];
    if accepts_gzip(headers) {
        (of_content, [(CONTENT_ENCODING, "gzip")], asset.gzipped).into_response()
    } else {
        (of_content, unpacked(asset)).into_response()
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = |coding: &str| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = parameters.trim().strip_prefix("q=").map_or(1.0, |value| value.parse().unwrap_or(0.0));
        ["gzip", "*"].contains(&name.trim()) && quality > 0.0
    };
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(accepted)
}

/// Unpacks a file, for clients such as `curl` that ask for no encoding.
fn unpacked(asset: &Asset) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(asset.gzipped).read_to_end(&mut plain).expect("the build script has packed it");
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served_as_it_is() {
        let mut count = 0;
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/web")).unwrap() {
            let path = entry.unwrap().path();
            if [".ts", ".json"].iter().any(|ending| path.to_str().unwrap().ends_with(ending)) {
                continue;
            }
            let name = path.file_name().unwrap().to_str().unwrap();
            let asset =
                ASSETS.iter().find(|asset| asset.path == name).unwrap_or_else(|| panic!("{name} is not served"));
            assert!(unpacked(asset) == std::fs::read(&path).unwrap(), "{name} is served with other text");
            count += 1;
        }
        assert_eq!(count, ASSETS.len());
    }

    #[test]
    fn a_file_is_sent_as_the_client_accepts_it() {
        let asset = ASSETS.iter().find(|asset| asset.path == "index.html").unwrap();
        let encoding = |accepted: &'static str| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            response(asset, &headers).headers().get(CONTENT_ENCODING).cloned()
        };
        for accepted in ["gzip", "gzip, deflate, br", "br;q=1.0, gzip;q=0.5", "*"] {
            assert_eq!(encoding(accepted).expect(accepted), "gzip", "{accepted}");
        }
        for refused in ["", "identity", "br", "gzip;q=0", "deflate, gzip;q=0.0"] {
            assert_eq!(encoding(refused), None, "{refused}");
        }
        assert_eq!(response(asset, &HeaderMap::new()).headers()[CONTENT_TYPE], "text/html; charset=utf-8");
    }

    #[test]
    fn the_page_names_files_that_exist_and_no_address() {
        let text =
            |name: &str| String::from_utf8(unpacked(ASSETS.iter().find(|asset| asset.path == name).unwrap())).unwrap();
        let page = text("index.html");
        let mut names = Vec::new();
        for mark in ["href=\"", "src=\""] {
            names.extend(page.split(mark).skip(1).filter_map(|rest| rest.split_once('"')).map(|(name, _)| name));
        }
        for name in names.iter().filter(|name| name.contains('.')) {
            assert!(ASSETS.iter().any(|asset| asset.path == *name), "{name} is named by index.html");
        }
        for asset in ASSETS {
            let content = text(asset.path).replace("http://www.w3.org/2000/svg", "");
            for elsewhere in ["http://", "https://", "url(//"] {
                assert!(!content.contains(elsewhere), "{} names {elsewhere}", asset.path);
            }
        }
    }
}
