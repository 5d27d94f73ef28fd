//! Checks Kafka's settings and starts its sink.

use std::sync::Arc;
use std::time::Duration;

use super::config::KafkaConfig;
use super::resting::ClusterTopics;
use super::{Kafka, LIMITS, may_name_a_topic, security};
use crate::CommonConfig;
use crate::batching::{Limits, Link};
use crate::error::quoted;
use crate::kind::Kind;
use crate::rests::Rests;

impl Kind for KafkaConfig {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn target(&self) -> String {
        quoted(&self.brokers)
    }

    fn common(&self) -> CommonConfig {
        CommonConfig { timeout: self.timeout, subjects: self.subjects.clone(), max_age: None }
    }

    fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.brokers.is_empty() {
            faults.push(format!("{prefix}.brokers is missing; write it like tls://host:9093, or host:9092 without TLS"));
        } else if !self.hosts().all(is_broker) {
            // Not repeated: it may contain a password.
            faults.push(format!(
                "{prefix}.brokers is not a list like tls://host:9093,tls://host:9093, or host:9092,host:9092 without TLS"
            ));
        }
        faults.extend(security::faults(self, prefix));
        if self.timeout < Duration::from_secs(2) {
            faults.push(format!("{prefix}.timeout is {:?}; it must be at least 2s", self.timeout));
        }
        if self.topic.as_str().is_empty() || self.topic.literals().any(|text| !text.chars().all(may_name_a_topic)) {
            faults.push(format!(
                "{prefix}.topic is `{}`; letters, digits, `.`, `_` and `-` are allowed",
                quoted(self.topic.as_str())
            ));
        }
        faults
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn link(&self, name: &str, rests: Rests) -> Result<Arc<dyn Link>, String> {
        let same = rests.get::<ClusterTopics>().filter(|resting| resting.belong_to(&self.brokers));
        let resting = same.unwrap_or_else(|| Arc::new(ClusterTopics::new(&self.brokers)));
        Ok(Arc::new(Kafka::new(name, self.clone(), resting)?))
    }
}

fn is_broker(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && !host.contains(['/', '@', ' ']) && port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> String {
        serde_json::from_str::<KafkaConfig>(text).expect("readable").faults("sinks.log").join("\n")
    }

    #[tokio::test]
    async fn a_link_that_replaces_another_lets_the_same_topics_rest_unless_the_brokers_are_others() {
        let config: KafkaConfig = serde_json::from_str(r#"{"brokers": "a:9092"}"#).expect("readable");
        let resting = |link: &dyn Link| link.rests().get::<ClusterTopics>().expect("it has some");
        let first = config.link("log", Rests::default()).expect("no faults");
        let changed = KafkaConfig { timeout: Duration::from_secs(3), ..config.clone() };
        let second = changed.link("log", first.rests()).expect("no faults");
        assert!(Arc::ptr_eq(&resting(&*first), &resting(&*second)));
        let moved = KafkaConfig { brokers: "b:9092".to_owned(), ..config };
        let third = moved.link("log", second.rests()).expect("no faults");
        assert!(!Arc::ptr_eq(&resting(&*second), &resting(&*third)), "the topics of another cluster do not rest");
    }

    #[test]
    fn faults_name_the_setting() {
        assert!(faults("{}").contains("sinks.log.brokers is missing"));
        for brokers in ["a:9092,b", "kafka://a:9092", "SASL_SSL://a:9094", "user:secret@a:9092"] {
            let refused = faults(&format!(r#"{{"brokers": "{brokers}"}}"#));
            assert!(refused.contains("sinks.log.brokers is not a list like tls://host:9093"), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(faults(r#"{"brokers": "a:9092", "topic": "a b"}"#).contains("sinks.log.topic"));
        assert!(faults(r#"{"brokers": "a:9092", "timeout": "1s"}"#).contains("sinks.log.timeout"));
        assert_eq!(faults(r#"{"brokers": "a:9092, b:9092", "topic": "shop.{aggregate_type}"}"#), "");
        assert_eq!(faults(r#"{"brokers": "TLS://[::1]:9093, b:9093"}"#), "");
    }
}
