// Who looks at this page, and of what: one host by its agent, or a fleet by its controller.

export interface Session {
  mode: 'host' | 'fleet';
  csrf: string; // goes with each request that changes something
  name: string; // of the host or the fleet
  who: string;
  may: 'nothing' | 'read' | 'change'; // of a fleet: "change" is an operator or an admin
  role?: 'viewer' | 'operator' | 'admin'; // of a fleet, the highest
  namespace?: string; // of one host, "-" unless --netns was given
  saves?: boolean; // the policy's file can be written where the page is served
  version: string;
  signs?: boolean; // of a fleet: its controller signs policies
  says?: string; // of a fleet: who is logged in, and what they may for which hosts
}

class State {
  current = $state<Session>();
  error = $state('');
  stranger = $state(false); // nobody is logged in

  async load() {
    try {
      const answer = await fetch('/session');
      this.stranger = answer.status === 401;
      if (answer.ok) this.current = (await answer.json()) as Session;
      this.error = answer.ok
        ? ''
        : ((await answer.json().catch(() => ({}))) as { error?: string }).error || answer.statusText;
    } catch {
      this.error = 'The server does not answer.';
    }
  }

  /** Ends the session of who is logged in at a fleet's controller. */
  async end() {
    await fetch('/api/v1/session', {
      method: 'DELETE',
      headers: { 'Sluice-CSRF': this.current?.csrf ?? '' },
    });
    location.assign('/');
  }
}

export const session = new State();
