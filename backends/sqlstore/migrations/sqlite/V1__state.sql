-- One row for each counter. STATE is what headgate reads; AT_US, N and M repeat its figures for people.
-- ENDS_US, in microseconds since 1970, is when the row may go.
CREATE TABLE IF NOT EXISTS HEADGATE_STATE (
    K       BLOB    NOT NULL PRIMARY KEY,
    STATE   BLOB    NOT NULL,
    AT_US   INTEGER NOT NULL,
    N       INTEGER NOT NULL,
    M       INTEGER NOT NULL,
    ENDS_US INTEGER NOT NULL
) WITHOUT ROWID
/
