//! Which requests are answered, and the headers of every answer.
//!
//! A browser may send requests to this port on behalf of any page. Such a page must not read the answers, nor embed
//! the live page. With DNS rebinding, a page from elsewhere has the origin of this server, but not one of its names.

use super::answer::text;
use super::health;
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv6Addr};

/// Headers of every answer. The policy lets the page load nothing but its own files and data.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri \
         'none'; form-action 'none'; frame-ancestors 'self'",
    ),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
];

const WRONG_HOST: &str = "The request needs one Host header: an IP address, localhost, or the host name of this \
    machine. To allow other names, set http_allowed_hosts of the server, or REVERB_HTTP_ALLOWED_HOSTS.";
const WRONG_SITE: &str = "Pages of other sites cannot read this server. Open the address in a tab of its own.";

/// The names under which the port answers.
#[derive(Debug)]
pub struct Guard {
    names: Vec<String>,
}

impl Guard {
    /// Accepts `localhost`, the name of this machine, and the given names.
    pub fn new(allowed_hosts: &[String]) -> Self {
        let mut names = vec!["localhost".to_owned()];
        names.extend(host_name().map(|name| name.to_ascii_lowercase()));
        names.extend(allowed_hosts.iter().map(|name| name.to_ascii_lowercase()));
        Self { names }
    }

    /// Returns the refusal of a request, if it must be refused. Health paths skip the host check: probes send any host.
    pub fn refusal(&self, request: &Parts) -> Option<Response> {
        let path = request.uri.path();
        if request.method != Method::GET && request.method != Method::HEAD {
            let refused = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are supported.");
            return Some(([(ALLOW, "GET, HEAD")], refused).into_response());
        }
        if health::is_path(path) {
            return None;
        }
        if !self.is_host_accepted(request) {
            return Some(text(StatusCode::MISDIRECTED_REQUEST, WRONG_HOST));
        }
        (!is_own_site(path, &request.headers)).then(|| text(StatusCode::FORBIDDEN, WRONG_SITE))
    }

    /// Whether a request has a name of this server, and no page of another site sends it.
    pub fn is_for_us(&self, request: &Parts) -> bool {
        self.is_host_accepted(request) && is_own_site(request.uri.path(), &request.headers)
    }

    fn is_host_accepted(&self, request: &Parts) -> bool {
        let mut hosts = request.headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        // An address in the request line takes precedence over the header, so it must be acceptable too.
        let line = request.uri.authority().map(|authority| authority.as_str());
        host.to_str().is_ok_and(|host| self.is_name_accepted(host))
            && line.is_none_or(|line| self.is_name_accepted(line))
    }

    fn is_name_accepted(&self, host: &str) -> bool {
        if let Some(literal) = host.strip_prefix('[') {
            return literal.split_once(']').is_some_and(|(address, rest)| {
                address.parse::<Ipv6Addr>().is_ok() && rest.strip_prefix(':').map_or(rest.is_empty(), is_port)
            });
        }
        let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
        let is_known =
            name.parse::<IpAddr>().is_ok() || self.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        is_known && port.is_none_or(is_port)
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a browser sends the request for a page of this server, or because somebody opens its address.
///
/// A link to the page in a notebook or on a dashboard is a navigation from another site. It is accepted for the page
/// alone: the site of the link cannot read what the new tab shows, and the page's files hold no data of the server.
fn is_own_site(path: &str, headers: &HeaderMap) -> bool {
    let is = |name: &str, wanted: &[&str]| {
        let mut values = headers.get_all(name).iter().peekable();
        values.peek().is_some() && values.all(|value| wanted.iter().any(|wanted| value == wanted))
    };
    !headers.contains_key("sec-fetch-site")
        || is("sec-fetch-site", &["same-origin", "none"])
        || (path == "/" && is("sec-fetch-mode", &["navigate"]) && is("sec-fetch-dest", &["document"]))
}

/// Sets the headers of every answer.
pub fn set_headers(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Returns the host name of this machine, if a URL can contain it.
pub fn host_name() -> Option<String> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    Some(reverb_service::host_name()).filter(|name| name.bytes().all(is_usual))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn status(request: axum::http::request::Builder) -> StatusCode {
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let guard = Guard::new(&["Replay.Example".to_owned()]);
        guard.refusal(&parts).map_or(StatusCode::OK, |refusal| refusal.status())
    }

    fn of_host(host: &str) -> StatusCode {
        status(Request::get("/").header(HOST, host))
    }

    fn of_site(path: &str, site: &str, mode: &str, dest: &str) -> StatusCode {
        let request = Request::get(path).header(HOST, "localhost").header("sec-fetch-site", site);
        status(request.header("sec-fetch-mode", mode).header("sec-fetch-dest", dest))
    }

    #[test]
    fn hosts_that_no_other_site_can_take_are_accepted() {
        for host in ["localhost", "LocalHost:80", "127.0.0.1:1", "10.1.2.3", "[::1]", "[::1]:80", "replay.example:80"] {
            assert_eq!(of_host(host), StatusCode::OK, "{host}");
        }
        if let Some(name) = host_name() {
            assert_eq!(of_host(&name.to_uppercase()), StatusCode::OK);
        }
    }

    #[test]
    fn other_hosts_are_refused() {
        let hosts = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", ":80", "[::1", "[::1]x"];
        for host in hosts.into_iter().chain(["localhost:80:80", "localhost:x", "[localhost]", "::1", "a@localhost"]) {
            assert_eq!(of_host(host), StatusCode::MISDIRECTED_REQUEST, "{host}");
        }
    }

    #[test]
    fn exactly_one_host_is_accepted() {
        assert_eq!(status(Request::get("/")), StatusCode::MISDIRECTED_REQUEST);
        let two = Request::get("/").header(HOST, "localhost").header(HOST, "localhost");
        assert_eq!(status(two), StatusCode::MISDIRECTED_REQUEST);
        let proxied = Request::get("http://evil.example/").header(HOST, "localhost");
        assert_eq!(status(proxied), StatusCode::MISDIRECTED_REQUEST);
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        for site in ["cross-site", "same-site", "", "same-origin, cross-site"] {
            assert_eq!(of_site("/", site, "no-cors", "image"), StatusCode::FORBIDDEN, "{site}");
            assert_eq!(of_site("/api/v1/tables", site, "cors", "empty"), StatusCode::FORBIDDEN, "{site}");
        }
        assert_eq!(of_site("/api/v1/tables", "same-origin", "cors", "empty"), StatusCode::OK);
        assert_eq!(of_site("/api/v1/tables", "none", "navigate", "document"), StatusCode::OK);
    }

    #[test]
    fn a_link_from_another_site_opens_the_page_in_a_tab_but_not_in_a_frame() {
        assert_eq!(of_site("/", "cross-site", "navigate", "document"), StatusCode::OK);
        assert_eq!(of_site("/", "cross-site", "navigate", "iframe"), StatusCode::FORBIDDEN);
        assert_eq!(of_site("/metrics", "cross-site", "navigate", "document"), StatusCode::FORBIDDEN);
    }

    #[test]
    fn health_is_open_but_read_only() {
        for path in ["/livez", "/readyz", "/healthz"] {
            assert_eq!(status(Request::get(path).header(HOST, "evil.example")), StatusCode::OK);
            assert_eq!(status(Request::post(path).header(HOST, "localhost")), StatusCode::METHOD_NOT_ALLOWED);
        }
    }
}
