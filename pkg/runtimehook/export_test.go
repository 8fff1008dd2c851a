package runtimehook

import "time"

// SetClock has the answers that are remembered grow old by a clock of the test.
func (h *InPlaceHooks) SetClock(now func() time.Time) { h.now = now }

// AnswerLifetime is how long an answer is remembered.
const AnswerLifetime = answerLifetime
