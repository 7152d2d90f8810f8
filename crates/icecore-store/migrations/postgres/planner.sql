-- What the planner is to think of our keys.
--
-- A statement names all columns of the index that it is meant for. But where a tenant, or a
-- session of it, is expected to have one row, every index that begins with them looks as
-- good as that one, and a plan that takes another reads all turns of a session for each
-- turn. Tables that are new, and tables of many small tenants with one that is large, look
-- like that. So the planner is told that these columns tell no two rows apart: it then
-- takes the index of which a statement names the most columns, as SQLite does.
--
-- That is kept with a table's statistics, which it has none of before it has rows. So each
-- gets ten, is analyzed, and loses them again: that is too little for the server to analyze
-- the empty table by itself, which would undo it. Later statistics say the same.
SET CONSTRAINTS ALL IMMEDIATE;
DO $$
DECLARE
    of_tenants TEXT[] := ARRAY(
        SELECT c.relname FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
            AND a.atttypid = 'bigint'::regtype AND NOT a.attisdropped
        WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r'
        ORDER BY 1);
    -- Columns with which keys begin.
    alike TEXT[] := '{tenant, scope, session, branch, level, workspace, operation}';
    left_over TEXT[] := of_tenants;
    waiting TEXT[];
    named TEXT;
    found RECORD;
    told_apart TEXT[];
    made TEXT;
BEGIN
    FOR found IN
        SELECT a.attrelid::regclass AS of_table, a.attname AS name FROM pg_attribute a
        WHERE a.attrelid = ANY (of_tenants::regclass[])
            AND a.attname = ANY (alike)
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET (n_distinct = 1)',
            found.of_table, found.name);
    END LOOP;
    FOREACH named IN ARRAY of_tenants LOOP
        -- The owner is to see the rows. The walls stand again at the end.
        EXECUTE format('ALTER TABLE %I NO FORCE ROW LEVEL SECURITY', named);
    END LOOP;
    -- Of nobody: no tenant has such a number. A table comes after those that its keys name.
    WHILE left_over <> '{}' LOOP
        waiting := left_over;
        FOREACH named IN ARRAY waiting LOOP
            CONTINUE WHEN EXISTS (SELECT FROM pg_constraint f
                WHERE f.conrelid = named::regclass AND f.contype = 'f'
                    AND f.confrelid = ANY (left_over::regclass[]));
            -- What differs from row to row: of each unique key the last column that names no
            -- row of another table, and whatever else may be anything.
            told_apart := ARRAY(
                SELECT last_one.name FROM pg_index i, LATERAL (
                    SELECT a.attname AS name
                    FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (number, at)
                    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
                    WHERE NOT EXISTS (SELECT FROM pg_constraint f WHERE f.conrelid = i.indrelid
                        AND f.contype = 'f' AND k.number = ANY (f.conkey))
                    ORDER BY k.at DESC LIMIT 1) last_one
                WHERE i.indrelid = named::regclass AND i.indisunique);
            SELECT format('INSERT INTO %I (%s) SELECT %s FROM generate_series(0, %s) number', named,
                    string_agg(quote_ident(a.attname), ', '),
                    string_agg(format(
                        CASE a.atttypid
                            WHEN 'bigint'::regtype THEN '%s'
                            -- No text of ours holds this character and a digit behind it.
                            WHEN 'text'::regtype THEN 'chr(1) || (%s)::text'
                            ELSE format('(%%s)::text::%s', format_type(a.atttypid, NULL))
                        END,
                        CASE WHEN a.attname = ANY (told_apart)
                            OR a.attname <> ALL (alike)
                                AND NOT EXISTS (SELECT FROM pg_constraint c
                                    WHERE c.conrelid = a.attrelid AND c.contype IN ('f', 'c')
                                        AND a.attnum = ANY (c.conkey))
                        THEN 'number' ELSE '0' END), ', '),
                    CASE WHEN told_apart = '{}' THEN 0 ELSE 9 END)
                INTO made
                FROM pg_attribute a
                WHERE a.attrelid = named::regclass AND a.attnum > 0 AND a.attnotnull
                    AND NOT a.attisdropped AND (NOT a.atthasdef OR a.attname = ANY (told_apart));
            EXECUTE made;
            EXECUTE format('ANALYZE %I', named);
            left_over := array_remove(left_over, named);
        END LOOP;
        IF waiting = left_over THEN
            RAISE EXCEPTION 'no row fits into %', waiting;
        END IF;
    END LOOP;
    left_over := of_tenants;
    WHILE left_over <> '{}' LOOP
        FOREACH named IN ARRAY left_over LOOP
            CONTINUE WHEN EXISTS (SELECT FROM pg_constraint f
                WHERE f.confrelid = named::regclass AND f.contype = 'f'
                    AND f.conrelid = ANY (left_over::regclass[]));
            EXECUTE format('DELETE FROM %I WHERE tenant < 10', named);
            left_over := array_remove(left_over, named);
        END LOOP;
    END LOOP;
END $$;
