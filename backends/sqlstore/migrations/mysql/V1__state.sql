-- One row for each counter. STATE is what headgate reads; AT_US, N and M repeat its figures for people.
-- ENDS_US, in microseconds since 1970, is when the row may go. It has no index: it changes with every
-- write, which would then have to write the index, too.
CREATE TABLE IF NOT EXISTS HEADGATE_STATE (
    K       VARBINARY(528) NOT NULL,
    STATE   MEDIUMBLOB     NOT NULL,
    AT_US   BIGINT         NOT NULL,
    N       BIGINT         NOT NULL,
    M       BIGINT         NOT NULL,
    ENDS_US BIGINT         NOT NULL,
    PRIMARY KEY (K)
) ENGINE = InnoDB
/
