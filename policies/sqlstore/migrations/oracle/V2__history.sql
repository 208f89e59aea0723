-- One row for each change of a policy, written by what changes it. CHANGE_ID grows with each change;
-- GENERATION is the one of HEADGATE_POLICY_STATE that the change made. BEFORE_VERSION or
-- AFTER_VERSION is NULL where there was no policy. Who writes removes the oldest changes.
CREATE TABLE HEADGATE_POLICY_CHANGE (
    CHANGE_ID             NUMBER(19)    NOT NULL,
    GENERATION            NUMBER(19)    NOT NULL,
    POLICY_KEY            VARCHAR2(255) NOT NULL,
    CHANGED_BY            VARCHAR2(512), -- an empty text is NULL
    CHANGED_US            NUMBER(19)    NOT NULL, -- microseconds since 1970
    BEFORE_TYPE           VARCHAR2(50),
    BEFORE_CAPACITY       NUMBER(19),
    BEFORE_REFILL_RATE    NUMBER(18,6),
    BEFORE_WINDOW_SECONDS NUMBER(18,6),
    BEFORE_VERSION        NUMBER(19),
    AFTER_TYPE            VARCHAR2(50),
    AFTER_CAPACITY        NUMBER(19),
    AFTER_REFILL_RATE     NUMBER(18,6),
    AFTER_WINDOW_SECONDS  NUMBER(18,6),
    AFTER_VERSION         NUMBER(19),
    CONSTRAINT HEADGATE_POLICY_CHANGE_PK PRIMARY KEY (CHANGE_ID)
)
/
CREATE INDEX IDX_POLICY_CHANGE_KEY ON HEADGATE_POLICY_CHANGE (POLICY_KEY, CHANGE_ID)
/
