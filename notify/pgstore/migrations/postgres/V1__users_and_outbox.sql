-- The limit and the counter of each user. The window begins at last_refresh_time and lasts
-- time_window minutes. reserved_count is how many of its units were given out to Redis;
-- row_version grows with every change of the configuration, also over a deletion.
CREATE SEQUENCE rate_limit_store_version
/
CREATE TABLE rate_limit_store (
    user_id           VARCHAR(255)   NOT NULL PRIMARY KEY,
    rate_limit        INT            NOT NULL CHECK (rate_limit >= 0),
    time_window       INT            NOT NULL CHECK (time_window > 0),
    current_count     INT            NOT NULL DEFAULT 0,
    last_refresh_time TIMESTAMPTZ(6) NOT NULL,
    reserved_count    INT            NOT NULL DEFAULT 0,
    row_version       BIGINT         NOT NULL DEFAULT nextval('rate_limit_store_version')
) WITH (fillfactor = 70)
/
-- Messages that were accepted and are to be published, in this order.
CREATE TABLE notify_outbox (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  VARCHAR(64)    NOT NULL,
    user_id     VARCHAR(255)   NOT NULL,
    message     TEXT           NOT NULL,
    accepted_at TIMESTAMPTZ(6) NOT NULL
)
