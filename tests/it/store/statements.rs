//! Every statement compiles against the schema, and none begins by reading a whole table.

use rusqlite::Connection;

#[test]
fn no_statement_scans_a_table() {
    let folder = tempfile::tempdir().unwrap();
    drop(stepward::store::Store::open(folder.path(), Default::default()).unwrap());
    let sql = Connection::open(folder.path().join("stepward.db")).unwrap();
    let statements = stepward::store::statements();
    assert!(statements.len() > 70, "{}", statements.len());
    let mut scans = Vec::new();
    for statement in statements {
        let mut explained = sql
            .prepare(&format!("EXPLAIN QUERY PLAN {statement}"))
            .unwrap_or_else(|error| panic!("{error}: {statement}"));
        let plan: Vec<String> = explained
            .raw_query()
            .mapped(|row| row.get::<_, String>(3))
            .collect::<Result<_, _>>()
            .unwrap();
        // No tables: a SELECT of one EXISTS, and what a recursive query has found so far.
        let found_so_far = |line: &str| {
            let names = ["SCAN a", "SCAN d", "SCAN h"];
            statement.contains("WITH RECURSIVE") && names.contains(&line)
        };
        // Rows that a subquery has counted off, and the first entries of an index in their own order: both end at a LIMIT.
        let counted_off = |line: &str| {
            let names = ["SCAN c", "SCAN (subquery"];
            let walks = line.contains(" USING INDEX ") || line.contains(" USING COVERING INDEX ");
            statement.contains("LIMIT")
                && (walks || names.iter().any(|name| line.starts_with(name)))
        };
        let scan = |line: &&String| {
            line.starts_with("SCAN")
                && *line != "SCAN CONSTANT ROW"
                && !found_so_far(line)
                && !counted_off(line)
        };
        scans.extend(
            plan.iter()
                .filter(scan)
                .map(|line| format!("{line}: {statement}")),
        );
        // The members of one concurrency group are sorted: as many as its limit lets in.
        let bounded = statement.contains("hold IS NULL\n     ORDER BY job_id");
        let sorts = plan
            .iter()
            .filter(|line| line.contains("USE TEMP B-TREE") && !bounded);
        scans.extend(sorts.map(|line| format!("{line}: {statement}")));
    }
    assert_eq!(scans, Vec::<String>::new());
}

#[test]
fn sqlite_is_compiled_without_locks_that_all_connections_share() {
    let sql = Connection::open_in_memory().unwrap();
    let options: Vec<String> = sql
        .prepare("PRAGMA compile_options")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let has = |option: &str| options.iter().any(|found| found == option);
    assert!(has("DEFAULT_MEMSTATUS=0"), "{options:?}");
    assert!(!has("ENABLE_MEMORY_MANAGEMENT"), "{options:?}");
}
