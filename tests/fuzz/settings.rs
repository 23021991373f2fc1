//! Settings files: whatever is in one, it is taken, or refused in one line. What is taken has no number that breaks anything.

use std::sync::OnceLock;

use stepward::config::{ConfigError, ServerConfig, WorkerConfig};

use super::dice::Dice;
use super::watch::Tried;
use super::{mutate, site};

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "recovery:\n", "heartbeat_timeout_secs: ", "listen: ", "127.0.0.1:0", "0.0.0.0:1", "[::]:1", "data_dir: ",
    "notify:\n", "url: ", "https://example.org", "http://user:pass@host", "secret: { env: ", "}", "4294967295",
    "4294967296", "slots: ", "tags: [", "docker: ", "limits:\n", "server: ", "type: webhook", "command: [", "null",
    "true", "embedded_worker: ", "retention: null\n", "job_days: ", "heartbeat_interval_secs: ", "env: {",
];

fn seeds() -> &'static [String] {
    static SEEDS: OnceLock<Vec<String>> = OnceLock::new();
    SEEDS.get_or_init(|| {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut seeds = Vec::new();
        for name in ["server-config.example.yaml", "worker-config.example.yaml"] {
            let text = std::fs::read_to_string(root.join(name)).expect("the example is there");
            // What is commented out is a setting too.
            seeds.push(text.replace("\n# ", "\n").replace("\n#", "\n"));
            seeds.push(text);
        }
        seeds
    })
}

pub fn play(dice: &mut Dice, tried: &Tried) {
    for _ in 0..10 {
        let bytes = match dice.roll(12) {
            0 => mutate::bytes(dice, 300),
            1 => mutate::noise(dice, 300).into_bytes(),
            _ => mutate::text(dice, seeds(), WORDS).into_bytes(),
        };
        again(&bytes, tried);
    }
}

pub fn again(bytes: &[u8], tried: &Tried) {
    tried.now(bytes);
    let folder = tempfile::tempdir_in(site::memory()).expect("a folder");
    let file = folder.path().join("settings.yaml");
    std::fs::write(&file, bytes).expect("it is written");
    let one_line = |error: ConfigError| {
        let told = error.to_string();
        assert!(
            told.lines().count() == 1 && told.contains("settings.yaml"),
            "{told:?}"
        );
    };
    match ServerConfig::load(Some(&file)) {
        Ok(config) => {
            let settings = config.settings();
            assert!(settings.heartbeat_timeout_ms > settings.heartbeat_interval_ms);
            assert_eq!(config.check(), Ok(()));
        }
        Err(error) => one_line(error),
    }
    match WorkerConfig::load(Some(&file)) {
        Ok(config) => assert_eq!(config.check(), Ok(())),
        Err(error) => one_line(error),
    }
}
