//! How turns settle into layers and come back.

use icecore::{ContextRequest, Memory, Principal, RawTurn, Scope, Seq, Tenant, Tier};

pub(crate) async fn memory() -> (tempfile::TempDir, Memory, Scope) {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::open(dir.path()).await.unwrap();
    let scope = memory.scope(&Principal::local_operator(Tenant::new("t").unwrap()), "m").unwrap();
    (dir, memory, scope)
}

#[tokio::test]
async fn smoke() {
    let (_dir, memory, scope) = memory().await;
    for n in 0..25 {
        let turns = (0..10)
            .map(|m| RawTurn::new("user", format!("This is turn {n}.{m} about glacier {m}.")))
            .collect();
        memory.remember(&scope, "s", turns).await.unwrap();
    }
    let settled = memory.settle(|_, _| {}).await.unwrap();
    println!("{settled:?}");
    let stats = memory.stats(scope.tenant(), None).await.unwrap();
    println!("{stats:#?}");
    let turns = memory.turns(&scope, "s", Seq(0), 1000).await.unwrap();
    assert_eq!(turns.len(), 250);
    assert_eq!(turns[0].tier, Tier::Cold);
    for (n, turn) in turns.iter().enumerate() {
        let expected = format!("This is turn {}.{} about glacier {}.", n / 10, n % 10, n % 10);
        assert_eq!(turn.turn.as_ref().unwrap().fields().content.text(), expected);
    }
    let context = memory.context(&scope, ContextRequest::of_session("s", 1000)).await.unwrap();
    println!("{}", context.text);
    let report = memory.check(false, |_, _| {}).await.unwrap();
    println!("{report:?}");
    assert!(report.is_ok());
    let receipt = memory
        .forget(
            &Principal::local_operator(scope.tenant().clone()),
            None,
            &icecore::ForgetRequest::Session("s".into()),
            false,
        )
        .await
        .unwrap();
    println!("{receipt:?}");
    memory.settle(|_, _| {}).await.unwrap();
    let report = memory.check(false, |_, _| {}).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
}
