//! Plugins that do not serve.

use super::*;

#[test]
fn a_failed_plugin_is_told_with_what_serves_instead() {
    let told = |state: &str| {
        changed!(NodeRecord {
            report: Some(format!(
                r#"{{"plugins":[{{"name":"mailer","version":"1.3","digest":"ab","state":"{state}","routes":[],"error":"no world","file":"x"}}]}}"#
            )),
            ..node("web-1", now())
        })
    };
    let with = |state: &str| Snapshot { nodes: vec![told(state)], ..snapshot() };
    assert_eq!(
        said(with("serving_older")),
        ["The new file of plugin mailer failed to load on web-1; version 1.3 is still serving. no world"]
    );
    assert_eq!(said(with("failed")), ["Plugin mailer failed to load on web-1, and no version of it is running. no world"]);
    for serving in ["breaker_open", "a_state_of_tomorrow"] {
        assert_eq!(said(with(serving)), Vec::<String>::new(), "{serving}");
    }
    let alive_until = now().minus(Duration::from_secs(3_600));
    let gone = changed!(NodeRecord { alive: false, alive_until, ..told("failed") });
    let others = Snapshot { nodes: vec![gone, node("web-2", now())], ..snapshot() };
    assert_eq!(said(others), Vec::<String>::new(), "a host that is gone serves nothing");
}
