-- Constants of all scripts. When a script is assembled, each name is replaced by its value, so a name costs nothing.

-- Numbers and times, in microseconds.
NEVER = -1                         -- the retry of what no waiting makes possible
EXACT = 4503599627370496           -- 2^52: the largest figure of a state
MOST = 4000                        -- values that fit on Lua's stack at once
MARGIN = 1000000                   -- keys outlive their use by a second
AHEAD = 1000000                    -- limit.MinAhead: a state may always lie so far ahead of now
MOST_WEIGHED = 4294967296          -- units of a former window that are weighed

-- What the blob begins with.
FLAGS = 1                          -- sum of the flags below
REQUESTS = 2                       -- how many
LIMITS = 3                         -- how many
FIRST_REQUEST = 4
FLAG_ZSET = 1                      -- layout=zset: instants in whole milliseconds
FLAG_OTHERS = 2                    -- some limits are no fixed windows
FLAG_NUMBERS = 4                   -- INCRBY counts as well, in windows that are numbers
FLAG_FULL = 8                      -- the server has said that it is full, and there is one request
FLAG_CHOICES = 16                  -- for the common script: some requests have alternatives

-- A request: its instant (negative: the server's clock), and OPS * its number of ops + its kind. Then its ops.
OPS = 16
SIMPLE = 1                         -- windows and buckets only, each under a key of its own; maybe with alternatives
REFUND = 2                         -- gives back what another part of the request took; after the ops: as of when each
SETTLEMENT = 3                     -- see limit/settle.go; after the ops: as of when each
BEYOND = -2                        -- this: limit.AsLeasedBeyond
WITH_LEASE = 4                     -- added: one op is about a lease, the others are as in a simple request
ALTERNATIVES = 8                   -- some ops are alternatives, of which some share a key or are no windows or buckets;
                                   -- after the ops: SETS * the set of each + its group, or 0
SETS = 256
REQUEST_HEAD = 2

-- An op of the blob: OP_BITS * its key + bits, its cost, its limit (from 0). The alternatives of a simple request come
-- first, by their sets and groups. No alternative has the bit EACH.
OP_SIZE = 3
OP_COST = 1
OP_LIMIT = 2
OP_BITS = 16
SHADOW = 1                         -- bit: it refuses nothing
MARKED = 2                         -- bits: an alternative of a simple request is added this, or
ENDS_GROUP = 4                     -- this if it is the last of its group, or
ENDS_SET = 6                       -- this if it is the last of its set
EACH = 8                           -- bit: it is charged whatever becomes of its request
KEYS_HELD = 1048576                -- a key has added so many times the key of the reservations that hold it back

-- A limit of the blob: its algorithm, then
LIMIT_SIZE = 6
CAPACITY = 1
WINDOW = 2
BELOW = 5                          -- how far below zero a cost without room takes it; -1: it takes nothing
-- Its two figures, by algorithm.
STEP = 3                           -- sliding window: a window has STEPS parts of STEP
STEPS = 4
NUM = 3                            -- bucket: a unit comes back in NUM / DEN microseconds; logs that owe likewise
DEN = 4
BEGINS = 3                         -- window of a calendar; its WINDOW is the end of the next one, and negative if the
ENDS = 4                           -- requests bring their instant
HOLD = 3                           -- concurrency: for how long refusals are remembered, in steps of ROUND
ROUND = 4

-- Algorithms, as in package limit.
UNUSED = 0
FIXED = 1
LOG = 2
SLIDING = 3
BUCKET = 4
LEASE = 5
CALENDAR = 256                     -- a fixed window of a calendar

-- A state: the figures of limit.State, and what the script knows of its key.
AT = 1
N = 2
M = 3
LIVES = 4                          -- the second until which the key is known to live
TAG = 5                            -- the algorithm
LIFE = 6                           -- for how long it is needed from now on, if it must be written; false if not

-- A window that is a number, so that INCRBY counts without a script: nine digits, FIRST_START + the second of its start
-- modulo STARTS, and ten for its units. Its key expires after it.
FIRST_START = 100000000
STARTS = 800000000
MOST_UNITS = 5000000000            -- of a number that the script writes: INCRBY adds less than as many again
NEAR = 100000000000000             -- three years: how far a number's window may be away
NUMBERED = 1                       -- in the place of LIVES: the key is a number

-- The outcome of an op.
OK = 1                             -- whether it had room
LEFT = 2                           -- what remains; without room, what an overflowing limit took
RETRY = 3
RESET = 4
CHARGED = 5                        -- the instant that it was charged at
-- Of other requests, and of alternatives, an op is its outcome and:
BITS = 6
KEY = 7
NUMBER = 8                         -- in the slice
COST = 9
LIMIT = 10                         -- where its limit begins in the input
HELD_BY = 11                       -- the key of the reservations that hold it back, or 0
IN_FLIGHT = 12                     -- of a lease
HELD = 13                          -- whether its holder had it before
TAKEN = 14                         -- of a settlement
ENDED = 15                         -- how many leases
CHOICE = 16                        -- of an alternative: SETS * its set + its group
CHOSEN = 17                        -- whether it is what an admitted request is charged for

-- What the answer names a key by whose value cannot be read: see unreadable.lua.
LATER = 1048576                    -- added to the key of what a later version has written

-- Logs.
WRAP = 8388608                     -- running sums of a list are kept modulo 2^23, in 5 bytes
PARTS = 64                         -- limit.debtRecords
SHORT = 600                        -- elements of a list that is read as a whole

-- Leases: see limit/leases.go.
HALF = 2097152                     -- the cost of an op is units + HALF + 2 * HALF * (ending + 8 * the holder's place)
MAX_AGAIN = 7
ENDED_LIFE = 60000000
MAX_ENDED = 1000
PAGE = 1000
MAX_MOVED = 1000
OWNER_SLICE = 1024                 -- limit.OwnerSlice
HIGHEST = '(4503599627370496'      -- the bound of all leases
END_ATTEMPT = 1
END_OWNER = 2
END_KNOWN = 3
END_LATE = 4
LETTER_L = 108                     -- what the member of a lease begins with
LETTER_E = 101                     -- of an end
LETTER_R = 114                     -- of refusals
