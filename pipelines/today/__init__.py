"""The running UTC day, landed and booked beside the warehouse."""
