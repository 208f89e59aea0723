-- Old parts of long sliding logs: each is written once, and deleted once. PART has the form of a STATE; LAST_US
-- is the instant of its newest record. What the row of HEADGATE_STATE has for it is one record, with the units
-- that still count; M says how many such records it begins with.
CREATE TABLE HEADGATE_LOG (
    K       RAW(528)   NOT NULL,
    LAST_US NUMBER(19) NOT NULL,
    PART    RAW(2000)  NOT NULL,
    CONSTRAINT HEADGATE_LOG_PK PRIMARY KEY (K, LAST_US)
)
/
