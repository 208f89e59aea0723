-- One row for each counter. STATE is what headgate reads, its first 2000 bytes; the rest of it is in MORE_CT
-- rows of HEADGATE_STATE_MORE. AT_US, N and M repeat its figures for people. ENDS_US, in microseconds since
-- 1970, is when the row may go. It has no index: it changes with every write, which would then have to write
-- the index, too.
CREATE TABLE HEADGATE_STATE (
    K       RAW(528)   NOT NULL,
    STATE   RAW(2000),
    MORE_CT NUMBER(5)  NOT NULL,
    AT_US   NUMBER(19) NOT NULL,
    N       NUMBER(19) NOT NULL,
    M       NUMBER(19) NOT NULL,
    ENDS_US NUMBER(19) NOT NULL,
    CONSTRAINT HEADGATE_STATE_PK PRIMARY KEY (K)
)
/
CREATE TABLE HEADGATE_STATE_MORE (
    K       RAW(528)  NOT NULL,
    PART_NB NUMBER(5) NOT NULL,
    PART    RAW(2000) NOT NULL,
    CONSTRAINT HEADGATE_STATE_MORE_PK PRIMARY KEY (K, PART_NB)
)
/
