-- One row for each counter. STATE is what headgate reads; AT_US, N and M repeat its figures for people.
-- ENDS_US, in microseconds since 1970, is when the row may go. It has no index: it changes with every
-- write, which would then have to write the index, too. The rest of a page is room for the next
-- version of its rows.
CREATE TABLE IF NOT EXISTS HEADGATE_STATE (
    K       BYTEA  NOT NULL CONSTRAINT HEADGATE_STATE_PK PRIMARY KEY,
    STATE   BYTEA  NOT NULL,
    AT_US   BIGINT NOT NULL,
    N       BIGINT NOT NULL,
    M       BIGINT NOT NULL,
    ENDS_US BIGINT NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)
/
-- Compressing a log costs more than its bytes.
ALTER TABLE HEADGATE_STATE ALTER COLUMN STATE SET STORAGE EXTERNAL
/
