-- a session's seq is not dense
SELECT 'session ' || o.session FROM sessions o WHERE o.last_seq !=
  (SELECT count(*) FROM turns t WHERE t.tenant = o.tenant AND t.session = o.session)

-- a session's count of turns is wrong
SELECT 'session ' || o.session FROM sessions o WHERE o.turns !=
  (SELECT count(*) FROM turns t WHERE t.tenant = o.tenant AND t.session = o.session AND t.flags & 4 = 0)

-- a session's count of tokens is wrong
SELECT 'session ' || o.session FROM sessions o WHERE o.tokens !=
  (SELECT coalesce(sum(tokens), 0) FROM turns t WHERE t.tenant = o.tenant AND t.session = o.session)

-- a branch's ordinals are not dense
SELECT 'session ' || b.session || ' branch ' || b.branch FROM branches b WHERE b.length !=
  (SELECT count(*) FROM turns t WHERE t.tenant = b.tenant AND t.session = b.session AND t.branch = b.branch)

-- positions are not in order of seq
SELECT 'session ' || session || ' seq ' || seq FROM (SELECT session, seq, position,
  lag(position) OVER (PARTITION BY tenant, session ORDER BY seq) AS before FROM turns) t
WHERE before >= position

-- a position lies beyond its tenant's counter
SELECT 'position ' || t.position FROM turns t JOIN tenants n ON n.tenant = t.tenant WHERE t.position > n.position

-- a run of positions does not match its turns
SELECT 'position ' || r.first FROM runs r WHERE r.count !=
  (SELECT count(*) FROM turns t WHERE t.tenant = r.tenant AND t.session = r.session
     AND t.seq >= r.first_seq AND t.seq < r.first_seq + r.count
     AND t.position = r.first + t.seq - r.first_seq)

-- chunks of a level do not tile
SELECT 'session ' || session || ' level ' || level || ' at ' || first FROM (SELECT session, level, first,
  lag(last, 1, CAST(0 AS BIGINT)) OVER (PARTITION BY tenant, session, branch, level ORDER BY first) AS before FROM chunks) k
WHERE before + 1 != first

-- a chunk is not the union of the level below
SELECT 'session ' || k.session || ' level ' || k.level || ' at ' || k.first FROM chunks k WHERE k.level > 0
  AND NOT EXISTS (SELECT 1 FROM chunks u WHERE u.tenant = k.tenant AND u.session = k.session
    AND u.branch = k.branch AND u.level = k.level - 1 AND u.last = k.last)

-- a chunk's turns or tokens are wrong
SELECT 'session ' || k.session || ' level ' || k.level || ' at ' || k.first FROM chunks k WHERE
  (k.turns, k.tokens) != (SELECT count(*) FILTER (WHERE t.flags & 4 = 0), coalesce(sum(t.tokens), 0) FROM turns t
    WHERE t.tenant = k.tenant AND t.session = k.session AND t.branch = k.branch
      AND t.seq BETWEEN k.first_seq AND k.last_seq AND t.ordinal BETWEEN k.first AND k.last)

-- a hot turn has no body
SELECT 'session ' || t.session || ' seq ' || t.seq FROM turns t
  JOIN branches b ON b.tenant = t.tenant AND b.session = t.session AND b.branch = t.branch
WHERE t.ordinal > b.warm_through AND t.flags & 12 = 0 AND NOT EXISTS
  (SELECT 1 FROM bodies x WHERE x.tenant = t.tenant AND x.session = t.session AND x.seq = t.seq)

-- a body is in two places
SELECT 'session ' || x.session || ' seq ' || x.seq FROM bodies x
  JOIN turns t ON t.tenant = x.tenant AND t.session = x.session AND t.seq = x.seq
  JOIN branches b ON b.tenant = t.tenant AND b.session = t.session AND b.branch = t.branch
WHERE t.ordinal <= b.warm_through OR t.flags & 4 != 0

-- a run of positions is not in its session's scope
SELECT 'position ' || r.first FROM runs r LEFT JOIN sessions o
  ON o.tenant = r.tenant AND o.session = r.session WHERE o.scope IS NOT r.scope

-- a summary's scope or number is wrong
SELECT 'session ' || m.session || ' level ' || m.level || ' at ' || m.first FROM summaries m
  JOIN sessions o ON o.tenant = m.tenant AND o.session = m.session
  JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
WHERE o.scope != m.scope OR m.number > p.summaries OR m.number < 1

-- a fact's number or source is wrong
SELECT 'fact ' || f.number FROM facts f JOIN scopes p ON p.tenant = f.tenant AND p.scope = f.scope
WHERE f.number > p.facts OR NOT EXISTS (SELECT 1 FROM turns t
  JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session
  WHERE t.tenant = f.tenant AND t.session = f.session AND t.seq = f.seq
    AND t.flags & 4 = 0 AND o.scope = f.scope)

-- a verdict quotes a turn that was erased
SELECT 'position ' || v.position FROM verdicts v JOIN turns t
  ON t.tenant = v.tenant AND t.session = v.session AND t.seq = v.seq WHERE t.flags & 4 != 0

-- a file's versions are not dense
SELECT 'position ' || max(position) FROM files GROUP BY tenant, workspace, path
HAVING max(version) - min(version) + 1 != count(*) OR min(version) < 1

-- a file is not where the log says
SELECT 'position ' || f.position FROM files f WHERE NOT EXISTS (SELECT 1 FROM log l
  WHERE l.tenant = f.tenant AND l.position = f.position AND l.kind = 'workspace.updated'
    AND json_extract(l.payload, '$.path') = f.path
    AND json_extract(l.payload, '$.version') || '' = f.version || '')

-- a run's count of events is wrong
SELECT 'run ' || r.run FROM workflow_runs r WHERE
  (SELECT count(*) FROM run_events e WHERE e.tenant = r.tenant AND e.run = r.run) !=
  CASE WHEN r.expired_at IS NULL THEN r.events ELSE 0 END

-- a run's events are not numbered from 0 on
SELECT 'run ' || run FROM run_events GROUP BY tenant, run
HAVING min(sequence) != 0 OR max(sequence) + 1 != count(*)

-- a run's end does not fit its status
SELECT 'run ' || run FROM workflow_runs
WHERE (status IN ('completed', 'failed', 'cancelled')) != (ended_at IS NOT NULL)
   OR expired_at IS NOT NULL AND ended_at IS NULL

-- a commitment is in no memory
SELECT 'commitment ' || k.id FROM commitments k WHERE NOT EXISTS
  (SELECT 1 FROM scopes p WHERE p.tenant = k.tenant AND p.scope = k.scope)

-- a commitment's end does not fit its state
SELECT 'commitment ' || id FROM commitments
WHERE state NOT BETWEEN 0 AND 3 OR (state = 0) != (settled_at IS NULL)

-- a settled commitment tells what it waited for
SELECT 'commitment ' || id FROM commitments
WHERE state != 0 AND (tag IS NOT NULL OR mentions IS NOT NULL)

-- a schedule is in no memory
SELECT 'schedule ' || k.id FROM schedules k WHERE NOT EXISTS
  (SELECT 1 FROM scopes p WHERE p.tenant = k.tenant AND p.scope = k.scope)

-- a schedule has no time, or two
SELECT 'schedule ' || id FROM schedules
WHERE (cron IS NULL) = (once_at IS NULL) OR (next_at IS NULL) != (fires_at IS NULL)

-- a tick is of no schedule
SELECT 'tick of schedule ' || i.schedule FROM ticks i WHERE NOT EXISTS
  (SELECT 1 FROM schedules k WHERE k.tenant = i.tenant AND k.id = i.schedule)

-- a tick's end does not fit its outcome
SELECT 'tick of schedule ' || schedule FROM ticks
WHERE (outcome IS NULL) != (ended_at IS NULL) OR outcome IS NULL AND heartbeat IS NULL

-- what stands for an entry is not there
SELECT 'entry at position ' || e.began FROM entries e WHERE e.successor IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM entries x
    WHERE x.tenant = e.tenant AND x.scope = e.scope AND x.id = e.successor)

-- an entry ended neither by its end nor for another
SELECT 'entry at position ' || began FROM entries
WHERE (ended IS NOT NULL) != (ended_at IS NOT NULL OR successor IS NOT NULL)
   OR (ended_at IS NOT NULL AND successor IS NOT NULL)
   OR (successor IS NULL AND (superseded_until IS NOT NULL OR overtaken != 0))

-- what an entry was made of, or what was made of it, is not there
SELECT 'entry ' || q.output FROM entry_quotes q WHERE 2 !=
  (SELECT count(*) FROM entries e WHERE e.tenant = q.tenant AND e.scope = q.scope
     AND e.id IN (q.source, q.output))

-- dreams of a memory are no chain
SELECT 'run ' || run FROM (SELECT run, state, previous,
    lag(run) OVER dreamt AS before, lead(run) OVER dreamt AS next
  FROM dreams WHERE state IN ('in-force', 'superseded')
  WINDOW dreamt AS (PARTITION BY tenant, scope ORDER BY number)) d
WHERE previous IS NOT before OR (state = 'in-force') != (next IS NULL)

-- a branch's turns count as read that no dream read
SELECT 'session ' || b.session || ' branch ' || b.branch FROM branches b
WHERE b.dreamed_through > b.length OR b.dreamed_through != coalesce((SELECT max(p.through)
  FROM dream_spans p JOIN dreams d ON d.tenant = p.tenant AND d.run = p.run
  WHERE p.tenant = b.tenant AND p.session = b.session AND p.branch = b.branch
    AND d.state IN ('in-force', 'superseded')), 0)

-- what a dream read is of no dream
SELECT 'run ' || p.run FROM dream_spans p WHERE NOT EXISTS
  (SELECT 1 FROM dreams d WHERE d.tenant = p.tenant AND d.run = p.run)

-- what a dream wrote is not there
SELECT 'run ' || d.run FROM dreams d WHERE d.state IN ('in-force', 'superseded')
  AND NOT EXISTS (SELECT 1 FROM entries e
    WHERE e.tenant = d.tenant AND e.scope = d.scope AND e.id = d.output)

-- a dream that was lost or taken back tells of its sources
SELECT 'run ' || run FROM dreams
WHERE state NOT IN ('in-force', 'superseded') AND section || source_ids != ''

-- an archive's key does not fit its state
SELECT 'archive ' || lower(hex(a.checksum)) FROM archives a
WHERE (a.sealed_key IS NULL) != (a.erased_at IS NOT NULL OR a.expired_at IS NOT NULL)
UNION SELECT 'run ' || d.run FROM dreams d WHERE d.state = 'in-force'
  AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.tenant = d.tenant
    AND a.scope = d.scope AND a.checksum = d.archive AND a.sealed_key IS NOT NULL)

-- a handoff reaches beyond its branch
SELECT 'handoff ' || h.id FROM handoffs h WHERE h.through < 0 OR h.through >
  coalesce((SELECT b.length FROM branches b WHERE b.tenant = h.tenant
    AND b.session = h.session AND b.branch = h.branch), -1)

-- a handoff has no version
SELECT 'handoff ' || id FROM handoffs WHERE version < 1

-- a handoff keeps what it does not cover
SELECT 'handoff ' || h.id FROM handoffs h, json_each(h.kept) k WHERE NOT EXISTS
  (SELECT 1 FROM turns t WHERE t.tenant = h.tenant AND t.session = h.session
     AND t.seq || '' = k.value || '' AND (t.branch < h.branch
       OR t.branch = h.branch AND t.ordinal <= h.through))

-- what a handoff was made of is not there
SELECT 'handoff ' || h.id FROM handoffs h LEFT JOIN handoffs p
  ON p.tenant = h.tenant AND p.id = h.previous AND p.session = h.session
    AND p.position < h.position
WHERE (h.previous IS NOT NULL AND p.id IS NULL) OR h.number != coalesce(p.number, 0) + 1

-- a handoff is not where the log says
SELECT 'handoff ' || h.id FROM handoffs h WHERE NOT EXISTS (SELECT 1 FROM log l
  WHERE l.tenant = h.tenant AND l.position = h.position
    AND l.kind = 'session.compacted' AND json_extract(l.payload, '$.compactionId') = h.id)

-- what a provider counted is of no handoff
SELECT 'session ' || u.session FROM view_usage u WHERE u.handoff IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM handoffs h WHERE h.tenant = u.tenant
    AND h.session = u.session AND h.id = u.handoff)

-- a link is of no turn of its memory
SELECT 'session ' || l.session || ', turn ' || l.seq FROM links l WHERE NOT EXISTS
  (SELECT 1 FROM turns t JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session
   WHERE t.tenant = l.tenant AND t.session = l.session AND t.seq = l.seq
     AND o.scope = l.scope)

-- a link is no hash, or a turn has two
SELECT 'session ' || l.session || ', turn ' || l.seq FROM links l
GROUP BY l.tenant, l.session, l.seq HAVING count(*) > 1 OR max(length(l.link)) != 16
  OR min(length(l.link)) != 16

-- an answer is about a session of another memory
SELECT 'session ' || a.session FROM answers a WHERE a.session IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM sessions o WHERE o.tenant = a.tenant
    AND o.session = a.session AND o.scope = a.scope)

-- what was hidden is counted for nothing that is there
SELECT 'position ' || h.position FROM hidden h WHERE NOT EXISTS
  (SELECT 1 FROM runs r JOIN turns t ON t.tenant = r.tenant AND t.session = r.session
     AND t.seq = r.first_seq + h.position - r.first
   WHERE r.tenant = h.tenant AND r.scope = h.scope AND t.flags & 4 = 0
     AND h.position BETWEEN r.first AND r.first + r.count - 1)
AND NOT EXISTS (SELECT 1 FROM entries e
   WHERE e.tenant = h.tenant AND e.scope = h.scope AND e.began = h.position)
AND NOT EXISTS (SELECT 1 FROM verdicts v
   WHERE v.tenant = h.tenant AND v.scope = h.scope AND v.position = h.position)
