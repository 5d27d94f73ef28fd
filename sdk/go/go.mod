module outbox

go 1.27
