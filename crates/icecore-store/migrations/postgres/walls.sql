-- Who sees which rows. Run again after every migration, so that no table is left out.
--
-- Nobody works as the owner: each transaction takes one of two roles that own nothing.
-- `icecore_tenant` sees the rows of the tenant whose number is in `icecore.tenant`, and
-- none while that is not set. A tenant is found by its name, too, which is how its number
-- is learnt, and has its API keys by that name. `icecore_sweeper` sees all, for what looks
-- across tenants. The owner is held by the same walls, and sees nothing.

DO $$
DECLARE
    named TEXT := $walls$nullif(current_setting('icecore.tenant_name', true), '')$walls$;
    numbered TEXT := $walls$nullif(current_setting('icecore.tenant', true), '')::bigint$walls$;
    own TEXT;
    found RECORD;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO icecore_tenant, icecore_sweeper', current_schema());
    FOR found IN
        SELECT c.relname AS name, format_type(a.atttypid, NULL) AS key
        FROM pg_class c
        LEFT JOIN pg_attribute a
            ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
        WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind IN ('r', 'p')
    LOOP
        own := CASE
            -- A tenant that is new has its name before its number.
            WHEN found.name = 'tenants' THEN format('tenant = %s OR name = %s', numbered, named)
            WHEN found.key = 'bigint' THEN format('tenant = %s', numbered)
            WHEN found.key = 'text' THEN format('tenant = %s', named)
            -- What belongs to no tenant is read and added to by all.
            ELSE NULL
        END;
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', found.name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', found.name);
        EXECUTE format('DROP POLICY IF EXISTS of_tenant ON %I', found.name);
        EXECUTE format('DROP POLICY IF EXISTS of_all ON %I', found.name);
        EXECUTE format('CREATE POLICY of_tenant ON %I TO icecore_tenant USING (%s)',
            found.name, coalesce(own, 'true'));
        -- A policy holds for the members of a role, too: those must become it first.
        EXECUTE format('CREATE POLICY of_all ON %I TO icecore_sweeper USING (%s)',
            found.name, $walls$current_user = 'icecore_sweeper'$walls$);
        EXECUTE format('REVOKE ALL ON %I FROM icecore_tenant, icecore_sweeper', found.name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO icecore_sweeper', found.name);
        EXECUTE format('GRANT %s ON %I TO icecore_tenant',
            CASE
                WHEN own IS NOT NULL THEN 'SELECT, INSERT, UPDATE, DELETE'
                WHEN found.name = 'policies' THEN 'SELECT, INSERT'
                WHEN found.name = 'commits' THEN 'SELECT, INSERT, UPDATE'
                -- To lock a row takes the right to change it.
                WHEN found.name = 'leases' THEN 'SELECT, UPDATE'
                ELSE 'SELECT'
            END, found.name);
    END LOOP;
END $$;
