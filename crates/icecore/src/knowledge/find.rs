//! Finding what has an id, whatever it is.

use icecore_domain::chunk::ChunkId;
use icecore_domain::ids::Scope;

use crate::error::Result;
use crate::knowledge::Knowledge;
use crate::layers::history::Found;

impl Knowledge {
    /// What has this id: a chunk, a turn (the client's id or ours), an entry.
    pub async fn find(&self, scope: &Scope, id: &str) -> Result<Found> {
        if ChunkId::parse(id).is_some()
            && let Ok(chunk) = self.chunk(scope, id).await
        {
            let turns = self.expand(scope, id).await?;
            return Ok(Found::Chunk(Box::new(chunk), turns));
        }
        if let Some(turn) = self.find_turn(scope, id).await? {
            return Ok(Found::Turn(Box::new(turn)));
        }
        self.entry(scope, id, None).await.map(Found::Entry)
    }
}
