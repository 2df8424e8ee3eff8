//! Routes requests to their answers.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::access::{Access, Denial};
use crate::{Format, Page, Readiness, Source, metrics_text};

/// Rows of a page, unless `limit` says otherwise.
const ROWS_DEFAULT: usize = 100;
/// As many as a client may ask for.
const ROWS_MAX: usize = 10_000;

const INDEX: &str = "weir\n\n/healthz\n/readyz\n/readyz?hostgroup=10\n/metrics\n/api/v1/status\n/api/v1/topology\n/api/v1/servers\n\
     /api/v1/digests?limit=100\n/api/v1/processlist?limit=100\n";

/// Everything that answers need.
pub(crate) struct RequestContext {
    source: Arc<dyn Source>,
    /// Replaced as a whole when the configuration changes.
    access: Mutex<Arc<Access>>,
    /// One question at a time, so that no number of clients makes more work for the workers than one.
    turn: tokio::sync::Mutex<()>,
}

/// The client's address, with each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub IpAddr);

impl RequestContext {
    pub(crate) fn new(source: Arc<dyn Source>, access: Access) -> Self {
        Self { source, access: Mutex::new(Arc::new(access)), turn: tokio::sync::Mutex::default() }
    }

    pub(crate) fn set_access(&self, access: Access) {
        *self.access.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    fn access(&self) -> Arc<Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the source, on a thread that may wait.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Source) -> T + Send + 'static,
    ) -> Result<T, Response> {
        let _turn = self.turn.lock().await;
        let source = self.source.clone();
        tokio::task::spawn_blocking(move || question(&*source))
            .await
            .map_err(|_| refuse(StatusCode::INTERNAL_SERVER_ERROR, "no answer: see the log"))
    }
}

/// All paths.
pub(crate) fn router(context: &Arc<RequestContext>) -> Router {
    let page = |page: Page| {
        get(move |State(context): State<Arc<RequestContext>>, request: Request| async move {
            answer_page(&context, page, request.uri().query()).await
        })
    };
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/status", page(Page::Status))
        .route("/api/v1/topology", page(Page::Topology))
        .route("/api/v1/servers", page(Page::Servers))
        .route("/api/v1/digests", page(Page::Digests))
        .route("/api/v1/processlist", page(Page::Processlist))
        .route_layer(middleware::from_fn_with_state(context.clone(), guard));
    Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .merge(guarded)
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such path: / lists them") })
        .layer(middleware::map_response(add_headers))
        .with_state(context.clone())
}

/// Nothing is kept by caches or taken for another type.
async fn add_headers(mut response: Response) -> Response {
    let headers = [(header::CACHE_CONTROL, "no-store"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn guard(State(context): State<Arc<RequestContext>>, request: Request, next: Next) -> Response {
    let access = context.access();
    if access.metrics_are_public && request.uri().path() == "/metrics" {
        return next.run(request).await;
    }
    let Some(Peer(peer)) = request.extensions().get().copied() else {
        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the client's address is not known");
    };
    let shown = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    match access.admit(shown, peer) {
        Ok(()) => next.run(request).await,
        Err(denial) => deny(denial),
    }
}

fn deny(denial: Denial) -> Response {
    let challenge: [(HeaderName, &str); 1] =
        [(header::WWW_AUTHENTICATE, "Basic realm=\"weir\", charset=\"UTF-8\"")];
    let status = match denial {
        Denial::NoCredentials | Denial::WrongCredentials => StatusCode::UNAUTHORIZED,
        Denial::WellKnown => return refuse(StatusCode::FORBIDDEN, &denial.to_string()),
    };
    (challenge, refuse(status, &denial.to_string())).into_response()
}

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, json_body(&json!({ "error": error }))).into_response()
}

fn json_body(value: &serde_json::Value) -> impl IntoResponse + use<> {
    ([(header::CONTENT_TYPE, "application/json")], format!("{value}\n"))
}

async fn health(State(context): State<Arc<RequestContext>>) -> Response {
    match context.ask(|source| source.ailments()).await {
        Err(response) => response,
        Ok(ailments) if ailments.is_empty() => "ok\n".into_response(),
        Ok(ailments) => (StatusCode::SERVICE_UNAVAILABLE, ailments.join("\n") + "\n").into_response(),
    }
}

/// 200, or 503 and the reasons, one a line.
async fn readiness(State(context): State<Arc<RequestContext>>, request: Request) -> Response {
    let Some(hostgroup) = hostgroup(request.uri().query()) else {
        return refuse(StatusCode::BAD_REQUEST, "the only parameter is hostgroup, a number");
    };
    match context.ask(move |source| source.readiness(hostgroup)).await {
        Err(response) => response,
        Ok(Readiness::Ready(notes)) => in_lines(StatusCode::OK, "ready", &notes),
        Ok(Readiness::NotReady(reasons)) => in_lines(StatusCode::SERVICE_UNAVAILABLE, "not ready", &reasons),
        Ok(Readiness::Unknown) => refuse(StatusCode::NOT_FOUND, "there is no such hostgroup"),
    }
}

fn in_lines(status: StatusCode, word: &str, more: &[String]) -> Response {
    let text: String = more.iter().map(|line| format!("{line}\n")).collect();
    (status, format!("{word}\n{text}")).into_response()
}

/// The `hostgroup` of a query string, if there is one; none if there is anything else in it.
fn hostgroup(query: Option<&str>) -> Option<Option<u32>> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Some(None) };
    query.strip_prefix("hostgroup=")?.parse().ok().map(Some)
}

async fn metrics(State(context): State<Arc<RequestContext>>, request: Request) -> Response {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::wanted(accept);
    match context.ask(move |source| metrics_text(source, format)).await {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(response) => response,
    }
}

async fn answer_page(context: &RequestContext, page: Page, query: Option<&str>) -> Response {
    let Some(rows_max) = limit(query) else {
        return refuse(
            StatusCode::BAD_REQUEST,
            &format!("the only parameter is limit, a number from 1 to {ROWS_MAX}"),
        );
    };
    match context.ask(move |source| source.page(page, rows_max)).await {
        Ok(value) => json_body(&value).into_response(),
        Err(response) => response,
    }
}

/// The `limit` of a query string; none if there is anything else in it.
fn limit(query: Option<&str>) -> Option<usize> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Some(ROWS_DEFAULT) };
    let limit = query.strip_prefix("limit=")?.parse().ok()?;
    (1..=ROWS_MAX).contains(&limit).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostgroups() {
        let cases = [
            (None, Some(None)),
            (Some(""), Some(None)),
            (Some("hostgroup=10"), Some(Some(10))),
            (Some("hostgroup="), None),
            (Some("hostgroup=-1"), None),
            (Some("hostgroup=1&x=2"), None),
            (Some("limit=1"), None),
        ];
        for (query, wanted) in cases {
            assert_eq!(hostgroup(query), wanted, "{query:?}");
        }
    }

    #[test]
    fn limits() {
        let cases = [
            (None, Some(ROWS_DEFAULT)),
            (Some(""), Some(ROWS_DEFAULT)),
            (Some("limit=7"), Some(7)),
            (Some("limit=10000"), Some(10_000)),
            (Some("limit=0"), None),
            (Some("limit=10001"), None),
            (Some("limit=-1"), None),
            (Some("limit=7&x=1"), None),
            (Some("x"), None),
        ];
        for (query, wanted) in cases {
            assert_eq!(limit(query), wanted, "{query:?}");
        }
    }
}
