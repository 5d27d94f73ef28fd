// One step of a saga: an order that was placed asks for its payment, and an order whose payment failed is rejected.
//
// Each step is one transaction: the follow-up event is written together with the answer to the event that caused it, or neither
// is. So no order is without its payment request, and none asks twice for the same event. Needs "emit = true" in the plugin's
// manifest.
package main

import (
	"encoding/json"
	"strconv"

	"outbox"
)

func init() {
	outbox.Plugin("order-saga", "0.1.0")
	outbox.HandleJSON("Order", "OrderPlaced", requestPayment)
	outbox.HandleJSON("Payment", "PaymentFailed", rejectOrder)
}

func main() {}

type orderPlaced struct {
	OrderID int64   `json:"order_id"`
	Total   float64 `json:"total"`
}

type paymentRequested struct {
	OrderID  int64   `json:"order_id"`
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
}

type paymentFailed struct {
	OrderID int64  `json:"order_id"`
	Reason  string `json:"reason"`
}

type orderRejected struct {
	OrderID int64  `json:"order_id"`
	Reason  string `json:"reason"`
}

func requestPayment(event *outbox.Event, order orderPlaced) error {
	if order.OrderID == 0 {
		return outbox.Dead("the order has no \"order_id\"")
	}
	return follow(event, order.OrderID, "Payment", "PaymentRequested", paymentRequested{
		OrderID:  order.OrderID,
		Amount:   order.Total,
		Currency: outbox.SettingOr("currency", "EUR"),
	})
}

func rejectOrder(event *outbox.Event, payment paymentFailed) error {
	if payment.OrderID == 0 {
		return outbox.Dead("the payment has no \"order_id\"")
	}
	return follow(event, payment.OrderID, "Order", "OrderRejected", orderRejected{
		OrderID: payment.OrderID,
		Reason:  payment.Reason,
	})
}

// follow emits the next event of the saga. Its aggregate is always the order, so the events of one order can be delivered in
// order.
func follow(event *outbox.Event, orderID int64, aggregateType, eventType string, payload any) error {
	bytes, err := json.Marshal(payload)
	if err != nil {
		return outbox.Unrecoverable("writing %s: %w", eventType, err)
	}
	id, err := outbox.Emit(outbox.Envelope{
		AggregateType: aggregateType,
		EventType:     eventType,
		AggregateID:   strconv.FormatInt(orderID, 10),
		Payload:       bytes,
		Headers:       outbox.Pairs{{Name: "caused-by", Value: event.ID}},
	})
	if err != nil {
		return err // what the host refused, and the line of the manifest that grants it
	}
	outbox.Info("the saga goes on", "order_id", orderID, "next", eventType, "next_id", id)
	return nil
}
