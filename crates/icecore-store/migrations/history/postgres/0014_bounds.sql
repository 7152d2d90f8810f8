-- What a tenant keeps, counted with every change to it, and what it used on a day.

-- `kept_turns` are those that were neither erased nor let go. `kept_bytes` are bodies as
-- they lie in whatever tier, entries with their tags, and kept versions of files.
-- `used_day` is the last day on which anything was counted, in days since 1970.
ALTER TABLE tenants
    ADD COLUMN kept_turns    BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN kept_bytes    BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN used_day      BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN used_requests BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN used_tokens   BIGINT NOT NULL DEFAULT 0;

-- Who counts what is there must see it. The walls stand again at the end.
ALTER TABLE tenants NO FORCE ROW LEVEL SECURITY;
ALTER TABLE turns NO FORCE ROW LEVEL SECURITY;
ALTER TABLE bodies NO FORCE ROW LEVEL SECURITY;
ALTER TABLE texts NO FORCE ROW LEVEL SECURITY;
ALTER TABLE packs NO FORCE ROW LEVEL SECURITY;
ALTER TABLE entries NO FORCE ROW LEVEL SECURITY;
ALTER TABLE files NO FORCE ROW LEVEL SECURITY;

UPDATE tenants SET
    kept_turns = (SELECT count(*) FROM turns t WHERE t.tenant = tenants.tenant AND t.flags & 12 = 0),
    kept_bytes =
        (SELECT coalesce(sum(length(b.body)), 0) FROM bodies b WHERE b.tenant = tenants.tenant)
      + (SELECT coalesce(sum(length(x.text)), 0) FROM texts x WHERE x.tenant = tenants.tenant)
      + (SELECT coalesce(sum(p.bytes), 0) FROM packs p WHERE p.tenant = tenants.tenant)
      + (SELECT coalesce(sum(length(e.content) + octet_length(e.tags)), 0) FROM entries e
         WHERE e.tenant = tenants.tenant)
      + (SELECT coalesce(sum(length(f.content)), 0) FROM files f WHERE f.tenant = tenants.tenant);
