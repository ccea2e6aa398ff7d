package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"

	"chainmail/engine/store"
)

const format = 2

// schemaOf names the schema of a member. Members have no slash in their names, so no two of them share one.
func schemaOf(o store.Owner) string {
	name := "chainmail/" + o.ClusterName + "/" + o.Member
	if len(name) <= maxIdentifier {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:maxIdentifier-20], "") + "/" + hex.EncodeToString(sum[:8])
}

// maxIdentifier is how many bytes of a name PostgreSQL keeps.
const maxIdentifier = 63

func lockOf(schema string) int64 {
	h := fnv.New64a()
	h.Write([]byte(schema))
	return int64(h.Sum64())
}

// statements are those of one schema.
type statements struct {
	session, tables, create, fill, identify, format, identity, boot, copies, pages, bind, bound string
	fence, state, older, wipe, drop, remove, putCopies, putPages, finish                        string
}

// relations counts the schemas of a name, their identity tables and all their relations.
const relations = `SELECT count(DISTINCT n.oid), count(c.oid) FILTER (WHERE c.relname = 'identity'), count(c.oid)
FROM pg_namespace n LEFT JOIN pg_class c ON n.oid = c.relnamespace WHERE n.nspname = $1`

func newStatements(schema string) *statements {
	in := func(sql string) string { return strings.ReplaceAll(sql, "@", pgx.Identifier{schema}.Sanitize()+".") }
	return &statements{
		session: `SELECT pg_try_advisory_lock($1), pg_is_in_recovery(), current_setting('synchronous_commit') = 'off', current_setting('fsync') = 'off'`,
		tables:  relations,
		create:  "CREATE SCHEMA " + pgx.Identifier{schema}.Sanitize(),
		fill: in(`CREATE TABLE @identity (one bool PRIMARY KEY DEFAULT true CHECK (one), format int NOT NULL, cluster_name text NOT NULL, member text NOT NULL,
	cluster text, incarnation bigint NOT NULL, boot bigint NOT NULL, starts bytea NOT NULL, applied bigint NOT NULL, entries bigint NOT NULL, view bytea);
CREATE TABLE @copies (type bytea, name bytea, promised bytea NOT NULL, stamp bytea NOT NULL, PRIMARY KEY (type, name));
CREATE TABLE @pages (type bytea, name bytea, page bytea, stamp bytea NOT NULL, sum bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (type, name, page))`),
		identify: in(`INSERT INTO @identity (format, cluster_name, member, incarnation, boot, starts, applied, entries) VALUES ($1, $2, $3, $4, 0, '', 0, 0)`),
		format:   in(`SELECT format FROM @identity`),
		identity: in(`SELECT cluster_name, member, incarnation, boot, starts, applied, entries, view FROM @identity`),
		boot:     in(`UPDATE @identity SET boot = $1, starts = $2`),
		copies:   in(`SELECT type, name, promised, stamp FROM @copies ORDER BY type, name`),
		pages:    in(`SELECT type, name, page, stamp, sum, data FROM @pages ORDER BY type, name, page`),
		bind:     in(`UPDATE @identity SET cluster = $1 WHERE cluster IS NULL`),
		bound:    in(`SELECT cluster FROM @identity`),

		fence: in(`SELECT 1 FROM @identity WHERE incarnation = $1 AND boot = $2 AND applied = $3 FOR UPDATE`),
		state: in(`SELECT incarnation, boot, applied FROM @identity`),
		older: in(`SELECT u.n FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[]) WITH ORDINALITY AS u(type, name, promised, stamp, n)
JOIN @copies c USING (type, name) WHERE c.promised > u.promised OR c.stamp > u.stamp LIMIT 1`),
		wipe: in(`DELETE FROM @pages p USING unnest($1::bytea[], $2::bytea[]) AS u(type, name) WHERE p.type = u.type AND p.name = u.name`),
		drop: in(`DELETE FROM @copies c USING unnest($1::bytea[], $2::bytea[]) AS u(type, name) WHERE c.type = u.type AND c.name = u.name`),
		remove: in(`DELETE FROM @pages p USING unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS u(type, name, page)
WHERE p.type = u.type AND p.name = u.name AND p.page = u.page`),
		// xmax is 0 in a row that was not there before.
		putCopies: in(`WITH w AS (INSERT INTO @copies AS c SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[])
ON CONFLICT (type, name) DO UPDATE SET promised = EXCLUDED.promised, stamp = EXCLUDED.stamp RETURNING (c.xmax = 0) AS fresh)
SELECT count(*) FILTER (WHERE fresh) FROM w`),
		putPages: in(`WITH w AS (INSERT INTO @pages AS p SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bytea[])
ON CONFLICT (type, name, page) DO UPDATE SET stamp = EXCLUDED.stamp, sum = EXCLUDED.sum, data = EXCLUDED.data RETURNING (p.xmax = 0) AS fresh)
SELECT count(*) FILTER (WHERE fresh) FROM w`),
		finish: in(`UPDATE @identity SET applied = $1, entries = entries + $2, view = COALESCE($3, view)`),
	}
}
