package batch

import _ "outbox/internal/bindings/exports/wit_batch_exports" // exports what the host calls with many events
