//go:build !wasip1

package outbox

// Host is what a plugin asks of its host, in a native build. Package outboxtest has one for tests.
type Host interface {
	// MaxLevel is the most detailed level that the host keeps; any is false when it keeps no lines at all.
	MaxLevel() (most Level, any bool)
	Log(level Level, message string, fields Pairs)
	Setting(key string) (value string, ok bool)
	Settings() Pairs
	Secret(key string) (value string, ok bool)
	RemainingMs() uint32
	Emit(envelope Envelope) (id string, err error)
	Publish(sink string, message Message) error
	GetState(key string) (value []byte, ok bool, err error)
	SetState(key string, value []byte) error
	DeleteState(key string) error
	HTTP(request Request) (*Response, error)
}

var host Host = noHost{}

// SetHost sets what stands for the host, and returns what stood for it before. For package outboxtest; native builds only.
func SetHost(next Host) (before Host) {
	before, host = host, next
	return before
}

// Deliver answers an event as a host would be answered, and returns nil, a *Deferral, a *Death or a *Failure. For package
// outboxtest; native builds only.
func Deliver(event *Event) error {
	return resultOf(answer(event)).answer()
}

// DeliverAll answers events that come in one call, each as Deliver would. For package outboxtest; native builds only.
func DeliverAll(events []*Event) []error {
	answers := answerAll(events)
	for i, err := range answers {
		answers[i] = resultOf(err).answer()
	}
	return answers
}

func (r result) answer() error {
	switch {
	case r.deferral != nil:
		return r.deferral
	case r.death != nil:
		return r.death
	case r.failure != nil:
		return r.failure
	default:
		return nil
	}
}

// CheckSettingsNow runs the function of CheckSettings as a host does at a load. For package outboxtest; native builds only.
func CheckSettingsNow() error {
	return settingsComplaint()
}

func maxLevel() (Level, bool) { return host.MaxLevel() }

func writeLog(level Level, message string, fields Pairs) {
	pairs := make(Pairs, len(fields))
	for i, field := range fields {
		pairs[i] = Pair{valid(field.Name), valid(field.Value)}
	}
	host.Log(min(level, LevelError), valid(message), pairs)
}

func setting(key string) (string, bool) { return host.Setting(key) }

func settings() Pairs { return host.Settings() }

func secret(key string) (string, bool) { return host.Secret(key) }

func remainingMs() uint32 { return host.RemainingMs() }

func emit(envelope Envelope) (string, error) {
	if envelope.ContentType == "" {
		envelope.ContentType = "application/json"
	}
	return host.Emit(envelope)
}

func publish(sink string, message Message) error {
	if message.ContentType == "" {
		message.ContentType = "application/json"
	}
	return host.Publish(sink, message)
}

func publishAll(sink string, messages []Message) []error {
	var errs []error
	for i, message := range messages {
		if err := publish(sink, message); err != nil {
			if errs == nil {
				errs = make([]error, len(messages))
			}
			errs[i] = err
		}
	}
	return errs
}

func getState(key string) ([]byte, bool, error) { return host.GetState(key) }

func setState(key string, value []byte) error { return host.SetState(key, value) }

func deleteState(key string) error { return host.DeleteState(key) }

func sendHTTP(request Request) (*Response, error) { return host.HTTP(request) }

// noHost stands where no test has set a host: it keeps nothing, knows nothing and grants nothing.
type noHost struct{}

func (noHost) MaxLevel() (Level, bool)       { return 0, false }
func (noHost) Log(Level, string, Pairs)      {}
func (noHost) Setting(string) (string, bool) { return "", false }
func (noHost) Settings() Pairs               { return nil }
func (noHost) Secret(string) (string, bool)  { return "", false }
func (noHost) RemainingMs() uint32           { return 0 }
func (noHost) Emit(Envelope) (string, error) { return "", refusedNatively }
func (noHost) Publish(string, Message) error { return refusedNatively }
func (noHost) SetState(string, []byte) error { return refusedNatively }
func (noHost) DeleteState(string) error      { return refusedNatively }
func (noHost) HTTP(Request) (*Response, error) {
	return nil, refusedNatively
}
func (noHost) GetState(string) ([]byte, bool, error) {
	return nil, false, refusedNatively
}

var refusedNatively = &Refusal{Unavailable, "there is no host in a native build; a test makes one with outboxtest.NewHost"}
