-- What is past its retention is found by when it was made. An index on the start could be taken for that of
-- searches.
CREATE INDEX IF NOT EXISTS RL_WNDW_CT_I02X ON RL_WNDW_CT (CREAT_TS)
