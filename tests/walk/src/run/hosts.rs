//! Hosts that start, stop, are killed, and get their last listener with a deploy.

use std::sync::Arc;
use std::time::Duration;

use outbox::dispatcher::{DispatcherConfig, Unroutable};
use outbox::listener::{BreakerConfig, Exponential, Owner, Registration};
use outbox::poller::PollerConfig;
use outbox::store::PARTITIONS;
use outbox::{Mode, Outbox, OutboxBuilder};
use tokio::time::{Instant, sleep};

use super::{Stage, locked};
use crate::listener::{Actor, ROUTES, last_route, last_route_as_pattern};
use crate::plan::Relays;
use crate::store::MemoryStore;
use crate::world::Life;

impl Stage {
    /// Starts a host, again and again until it does.
    pub(super) fn start(self: Arc<Self>, place: usize, after: Duration) {
        let stage = self.clone();
        self.keep(tokio::spawn(async move {
            sleep(after).await;
            loop {
                let life = {
                    let mut world = stage.world();
                    let lacks_route = stage.lacks_route(place, world.is_healed());
                    world.lives.push(Life { place, owner: None, killed: false, stops: false, failed_at: None, lacks_route });
                    world.lives.len() - 1
                };
                match stage.builder(life).start().await {
                    Ok(outbox) => {
                        stage.set_relay(life, &outbox);
                        let mut world = stage.world();
                        world.lives[life].owner = Some(outbox.owner().as_str().to_owned());
                        let line = format!("{} starts", world.name(life));
                        world.note(line);
                        *locked(&stage.places[place]) = Some((life, outbox));
                        return;
                    }
                    Err(_) => sleep(Duration::from_millis(500)).await,
                }
            }
        }));
    }

    /// Whether a host that starts in this place has no listener for the last route: a deploy has not come to it yet. Where
    /// every host delivers everything it never does; where one host alone may deliver an event, the deploy ends once the
    /// database is well.
    fn lacks_route(&self, place: usize, is_healed: bool) -> bool {
        place > 0 && self.plan.seed.is_multiple_of(3) && (self.plan.mode == Mode::MultiNode || !is_healed)
    }

    fn builder(&self, life: usize) -> OutboxBuilder<MemoryStore> {
        let plan = &self.plan;
        let store = MemoryStore { world: self.world.clone(), life };
        let dispatcher = DispatcherConfig {
            workers: plan.workers,
            hot_queue: plan.queue,
            cold_queue: plan.queue,
            max_attempts: plan.max_attempts,
            max_deferrals: plan.max_deferrals,
            deadline: plan.deadline,
            lease: plan.lease,
            drain_timeout: plan.drain_timeout,
            unroutable: Unroutable::Park,
            settle_batch: plan.settle_batch,
            ..DispatcherConfig::default()
        };
        let poller = PollerConfig {
            interval: plan.poll_interval,
            batch_size: plan.poll_batch,
            drain_batch_size: plan.poll_batch * 4,
            skip_recent: Duration::ZERO,
        };
        let breaker =
            BreakerConfig { window: 2 * plan.breaker_threshold, threshold: plan.breaker_threshold, pause: plan.breaker_pause };
        let mut builder = Outbox::builder(store)
            .mode(plan.mode)
            .dispatcher(dispatcher)
            .poller(poller)
            .breaker(breaker)
            .order(plan.order)
            .retry(Exponential { base: Duration::from_millis(200), max: Duration::from_secs(5) })
            .purge(plan.purge.clone())
            .label(format!("life{life}"));
        let lacks_route = self.world().lives[life].lacks_route;
        for number in 0..ROUTES.len() {
            if number + 1 == ROUTES.len() && (lacks_route || plan.relays == Relays::Everywhere) {
                continue;
            }
            let actor = Actor { world: self.world.clone(), life, route: number, is_relay: false };
            builder = builder.registration(actor.registration());
        }
        builder
    }

    /// Lets a relay answer the last route, if this host has one. An event that was read before that is parked meanwhile.
    fn set_relay(&self, life: usize, outbox: &Outbox<MemoryStore>) {
        let (place, lacks_route) = {
            let world = self.world();
            (world.lives[life].place, world.lives[life].lacks_route)
        };
        let route = match (self.plan.relays, lacks_route) {
            (Relays::Everywhere, false) if place == 0 => last_route(),
            (Relays::Everywhere, false) | (Relays::WithoutListener, true) => last_route_as_pattern(),
            _ => return,
        };
        let actor = Actor { world: self.world.clone(), life, route: ROUTES.len() - 1, is_relay: true };
        let relay = (Owner::Sink(Arc::from("broker")), Registration::new(route, actor));
        outbox.listeners().set_relays(vec![relay]).expect("it is the only one");
    }

    /// From one moment to the next a host is gone, with all that it had not sent yet.
    pub(super) fn kill(self: Arc<Self>, place: usize) {
        let Some((life, outbox)) = locked(&self.places[place]).take() else { return };
        locked(&self.writers).retain(|(of, task)| {
            if *of == life {
                task.abort();
            }
            *of != life
        });
        let mut world = self.world();
        let line = format!("{} is killed", world.name(life));
        world.note(line);
        world.lives[life].killed = true;
        world.life_ends(life);
        let owner = world.lives[life].owner.clone().unwrap_or_default();
        world.break_session(&owner, None);
        let after = world.chance.millis(500..30_000);
        drop(world);
        locked(&self.dead).push(outbox);
        self.start(place, after);
    }

    pub(super) fn restart(self: Arc<Self>, place: usize) {
        let Some((life, outbox)) = locked(&self.places[place]).take() else { return };
        let stage = self.clone();
        self.keep(tokio::spawn(async move {
            stage.stop(life, outbox).await;
            let after = stage.world().chance.millis(0..5_000);
            stage.start(place, after);
        }));
    }

    /// Stops a host, and sees whether that ends in time.
    async fn stop(&self, life: usize, outbox: Outbox<MemoryStore>) {
        let (began, name) = (Instant::now(), self.world().name(life));
        {
            let mut world = self.world();
            world.note(format!("{name} stops"));
            world.lives[life].stops = true;
        }
        outbox.shutdown().await;
        let (took, within) = (began.elapsed(), self.plan.stop_within());
        let mut world = self.world();
        world.note(format!("{name} has stopped after {took:?}"));
        if took > within {
            world.violated(format!("{name} took {took:?} to stop, and may take {within:?}"));
        }
    }

    /// Starts those again whose listeners are not complete.
    pub(super) fn end_deploy(self: &Arc<Self>) {
        for place in 0..self.plan.hosts {
            let life = locked(&self.places[place]).as_ref().map(|(life, _)| *life);
            if life.is_some_and(|life| self.world().lives[life].lacks_route && !self.lacks_route(place, true)) {
                self.clone().restart(place);
            }
        }
    }

    /// Stops whoever is there. Now that the database is well, nothing of them is left in it.
    pub(super) async fn stop_all(&self) {
        for place in &self.places {
            let Some((life, outbox)) = locked(place).take() else { continue };
            self.stop(life, outbox).await;
            let mut world = self.world();
            let owner = world.lives[life].owner.clone().unwrap_or_default();
            let holds_any = (0..PARTITIONS).any(|partition| world.table.holds(&owner, partition));
            if world.table.nodes.contains_key(&owner) || holds_any {
                let fault = format!("{} has stopped and stands in the tables still", world.name(life));
                world.violated(fault);
            }
        }
    }
}
