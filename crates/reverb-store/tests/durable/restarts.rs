//! Restarts after ends of all kinds.

use crate::world::{Folder, Server, contents, insert, options};
use reverb_core::Error;
use reverb_service::LogMode;

#[test]
fn what_was_confirmed_is_there_after_the_end_of_the_process() {
    for mode in [LogMode::Process, LogMode::Power] {
        let folder = Folder::new();
        let server = Server::start(options(&folder.0, Some(mode))).unwrap();
        (1..=5).for_each(|key| insert(server.items(), key).unwrap());
        (1..=3).for_each(|key| insert(server.queue(), key).unwrap());
        server.items().mutate(&[(2, 7.0)], &[1]).unwrap();
        drop(server);
        let server = Server::start(options(&folder.0, Some(mode))).unwrap();
        assert_eq!(contents(server.items()), [(2, 7.0), (3, 1.0), (4, 1.0), (5, 1.0)]);
        assert_eq!(contents(server.queue()), [(1, 1.0), (2, 1.0), (3, 1.0)]);
        // The same again behind a checkpoint.
        server.store.save(&server.tables).unwrap();
        insert(server.items(), 6).unwrap();
        server.queue().reset().unwrap();
        server.store.close().unwrap();
        let server = Server::start(options(&folder.0, Some(mode))).unwrap();
        assert_eq!(contents(server.items()), [(2, 7.0), (3, 1.0), (4, 1.0), (5, 1.0), (6, 1.0)]);
        assert_eq!(contents(server.queue()), []);
    }
}

#[test]
fn a_server_without_a_log_refuses_a_folder_with_unsaved_changes() {
    let folder = Folder::new();
    let server = Server::start(options(&folder.0, Some(LogMode::Process))).unwrap();
    insert(server.items(), 1).unwrap();
    server.store.close().unwrap();
    let error = Server::start(options(&folder.0, None)).unwrap_err();
    assert!(matches!(&error, Error::DataLoss(text) if text.contains("durability")), "{error}");
    let mut accepts = options(&folder.0, None);
    accepts.accept_loss = true;
    let server = Server::start(accepts).unwrap();
    assert_eq!(contents(server.items()), []);
    server.store.close().unwrap();
    let server = Server::start(options(&folder.0, None)).unwrap();
    server.store.close().unwrap();
    // And a folder whose log has nothing that the checkpoint lacks is taken.
    let server = Server::start(options(&folder.0, Some(LogMode::Process))).unwrap();
    insert(server.items(), 2).unwrap();
    server.store.save(&server.tables).unwrap();
    server.store.close().unwrap();
    let server = Server::start(options(&folder.0, None)).unwrap();
    assert_eq!(contents(server.items()), [(2, 1.0)]);
}
