package backends

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// A Figure is a number that a store or a layer keeps of itself: a row of the table of metrics.
type Figure = metrics.Row

// Figured is a store or a layer with figures. They are asked for once.
type Figured interface{ Figures() []Figure }
