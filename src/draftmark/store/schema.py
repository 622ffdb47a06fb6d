"""The database's tables, version by version. `PRAGMA user_version` holds the version of a file.

History:
    1  runs, trials, observations, points, samples, findings
"""

from typing import Final

VERSION: Final = 1

TABLES: Final = """
create table run (
    id integer primary key,
    command text not null,
    arguments text not null,            -- JSON list, as typed
    environment text not null,          -- JSON of draftmark.trial.Environment: what must match before runs are compared
    model text,                         -- JSON of draftmark.model.Model, where the checkpoint could be read
    bandwidth text,                     -- JSON of draftmark.hardware.Bandwidth, where it was measured
    started real not null,              -- Unix time
    ended real,                         -- null: still going, or killed
    status text                         -- done, failed, interrupted, or null as above
);
create table trial (
    id integer primary key,
    run integer not null references run,
    configuration text not null,        -- JSON of draftmark.configuration.Configuration
    environment text not null,
    log text,
    handle text,                        -- JSON of draftmark.store.records.Handle: how to find the process again
    started real not null,
    ended real,
    outcome text,                       -- JSON of draftmark.trial.Outcome
    predicted text not null default '[]',   -- JSON of ledgers, one a rank, worst first
    observed text not null default '[]',
    predicted_pool text,                -- JSON of draftmark.ledger.Pool
    pool_tokens integer,                -- as the engine printed it
    pool_bytes integer,
    pool_page integer,
    pool_blocks integer,
    pool_groups integer
);
create table observation (
    trial integer not null references trial,
    quantity text not null,
    value text not null,                -- JSON scalar
    unit text not null,
    rank integer,
    phase text not null,
    source text not null                -- JSON of draftmark.observation.Source
);
create table point (
    id integer primary key,
    run integer not null references run,
    trial integer references trial,
    asked integer not null,             -- tokens
    output integer not null,
    concurrency integer not null,
    mode text not null,
    rate real,                          -- requests a second that were due, null: one batch after the other
    content text,                       -- what the prompts were made of
    started real not null,
    ended real,                         -- null: open; an open point is never used
    invalid text,                       -- why it must not be used
    flags text not null default '[]'
);
create table sample (
    id integer primary key,
    point integer not null references point,
    body text not null                  -- JSON of draftmark.sample.Sample: raw times and counts
);
create table finding (
    id integer primary key,
    run integer not null references run,
    trial integer references trial,
    code text not null,
    body text not null                  -- JSON of draftmark.finding.Finding
);
create index trial_run on trial (run);
create index observation_trial on observation (trial);
create index point_run on point (run);
create index sample_point on sample (point);
create index finding_run on finding (run);
"""

MIGRATIONS: Final[dict[int, str]] = {0: TABLES}
"""From each version to the next, each statement ending in `;` at its line's end; version 0 is an empty file."""
