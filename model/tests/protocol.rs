//! The protocol holds; without any one of its rules it does not.

use digestd_model::mutation::Mutation;
use digestd_model::protocol::Protocol;
use digestd_model::scenario;
use stateright::{Checker, HasDiscoveries, Model};

/// The scenario that shows what a rule is for, and the property that breaks without it.
fn witness(mutation: Mutation) -> (Protocol, &'static str) {
    match mutation {
        Mutation::NoEpochInFence => (Protocol::one_message(2), "no write by an old epoch or token"),
        Mutation::NoStateInFence => (Protocol::one_message(2), "a final state stays final"),
        Mutation::NoMarker => (Protocol::one_message(2), "never two accepted hand-overs"),
        Mutation::GuardBeforeMarker => (Protocol::guard(2), "a duplicate only beside a body that left"),
        Mutation::GuardGivenBackByNonOwner => (Protocol::restore(2), "never two accepted hand-overs"),
        Mutation::RetentionInsideHorizon | Mutation::ClaimWithoutWindow => {
            (Protocol::end_of_the_week(2), "never two accepted hand-overs")
        }
        Mutation::MissedWithoutWeek => (Protocol::end_of_the_week(2), "missed never beside enqueued"),
        Mutation::SweptBeforeComplete => (Protocol::two_organisations(1), "every claim ends"),
        Mutation::OptOutInWhere => (Protocol::one_message(1), "every message ends"),
        Mutation::SweepRaisesToken => (Protocol::one_message(1), "a known answer is never thrown away"),
        Mutation::NextMarkerBeforeResult => (Protocol::two_messages(1), "at most one marker per connection"),
        Mutation::ClaimIsALatch => (Protocol::one_message(1), "every claim ends"),
    }
}

#[test]
fn every_scenario_holds_in_every_reachable_state() {
    for protocol in scenario::all(false) {
        let name = protocol.name;
        let checker = protocol.checker().threads(2).spawn_bfs().join();
        assert!(checker.is_done(), "{name} was not explored to its end");
        println!("{name}: {} states", checker.unique_state_count());
        checker.assert_properties();
    }
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    for mutation in Mutation::ALL {
        let (protocol, property) = witness(mutation);
        let found = HasDiscoveries::AnyOf([property].into());
        let checker = protocol.without(mutation).checker().threads(2).finish_when(found).spawn_bfs().join();
        assert!(
            checker.discovery(property).is_some(),
            "{mutation:?} breaks nothing: “{property}” still holds"
        );
    }
}

#[test]
fn the_names_of_the_steps_are_the_names_in_the_store() {
    let store = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/store");
    let files = std::fs::read_dir(store).unwrap();
    let code: String = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let steps = [
        "without_send",
        "claim",
        "mark_swept",
        "take_over",
        "renew",
        "enqueue",
        "lease_messages",
        "mark_messages",
        "take_fingerprint",
        "give_fingerprint_back",
        "record_results",
        "sweep_messages",
        "record_missed",
        "close_week",
        "delete_sends",
    ];
    for step in steps {
        assert!(code.contains(&format!("pub async fn {step}(")), "the store has no {step}");
    }
}
